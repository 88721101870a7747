// The attention between two rows of pieces, such as a sentence and its translation: ribbons with links, and a heat map.

const SVG = "http://www.w3.org/2000/svg";
const WORD_START = "▁";
const MARKS = { "<s>": "start", "</s>": "end", "<unk>": "?", "<pad>": "–" };
// Weights below are not drawn as links.
const VISIBLE = 0.08;
// Text on weights from these values on has the contrasting colour: in the dark scheme, and in the light one.
const HALF = 0.55;
const STRONG = 0.8;

/** The picture; it gets its elements by name, and is independent of the page. */
export class AttentionPicture {
  /**
   * @param {{ribbons: HTMLElement, links: SVGElement, source: HTMLElement, target: HTMLElement, map: HTMLTableElement,
   *   reading: HTMLElement}} parts
   */
  constructor(parts) {
    this.parts = parts;
    this.content = { source: [], target: [], weights: [] };
    this.chips = { source: [], target: [] };
    /** The piece that stays selected when the pointer leaves: {side, index} or null. */
    this.pinned = null;
    for (const side of ["source", "target"]) this.listenToPieces(side);
    this.listenToMap();
    new ResizeObserver(() => this.draw(this.shown)).observe(parts.ribbons);
  }

  /** Shows pieces, the queries as target and the keys as source, and weights[target][source]. */
  show(content) {
    this.content = content;
    this.pinned = null;
    for (const side of ["source", "target"]) {
      this.chips[side] = content[side].map((piece, index) => chip(piece, content[side][index + 1], index));
      this.parts[side].replaceChildren(...this.chips[side]);
    }
    this.fillMap();
    this.choose(null);
  }

  listenToPieces(side) {
    const element = this.parts[side];
    const chosen = (event) => {
      const found = event.target.closest(".piece");
      return found ? { side, index: Number(found.dataset.index) } : null;
    };
    element.addEventListener("pointerover", (event) => this.choose(chosen(event) || this.pinned));
    element.addEventListener("pointerleave", () => this.choose(this.pinned));
    element.addEventListener("focusin", (event) => this.choose(chosen(event)));
    element.addEventListener("focusout", () => this.choose(this.pinned));
    element.addEventListener("click", (event) => {
      const found = chosen(event);
      const again = found && this.pinned && found.side === this.pinned.side && found.index === this.pinned.index;
      this.pinned = again ? null : found;
      this.choose(this.pinned);
    });
    element.addEventListener("keydown", (event) => this.move(side, event));
  }

  /** Moves the focus with the arrow keys; the tab key reaches one piece of each ribbon. */
  move(side, event) {
    const chips = this.chips[side];
    const at = chips.indexOf(document.activeElement);
    const onward = getComputedStyle(this.parts[side]).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: at + onward, ArrowLeft: at - onward, Home: 0, End: chips.length - 1 };
    const other = side === "source" ? "target" : "source";
    if (event.key === "Escape") {
      this.pinned = null;
      this.choose(null);
    } else if (event.key === (side === "source" ? "ArrowDown" : "ArrowUp")) {
      event.preventDefault();
      const weights = this.weightsOf({ side, index: at });
      this.focus(other, weights.indexOf(Math.max(...weights)));
    } else if (event.key in steps && at >= 0) {
      event.preventDefault();
      this.focus(side, Math.min(Math.max(steps[event.key], 0), chips.length - 1));
    }
  }

  focus(side, index) {
    this.chips[side].forEach((chip, at) => (chip.tabIndex = at === index ? 0 : -1));
    if (this.chips[side][index]) this.chips[side][index].focus();
  }

  listenToMap() {
    this.parts.map.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td, th[data-row], th[data-column]");
      if (!cell) return;
      const { row, column } = cell.dataset;
      if (row === undefined) this.choose({ side: "source", index: Number(column) });
      else this.choose({ side: "target", index: Number(row), only: column === undefined ? undefined : Number(column) });
    });
    this.parts.map.addEventListener("pointerleave", () => this.choose(this.pinned));
  }

  /** The weights between a piece and all pieces of the other side. */
  weightsOf({ side, index }) {
    const { weights } = this.content;
    return side === "target" ? weights[index] : weights.map((row) => row[index]);
  }

  /** Highlights the pieces that belong to a piece; null removes the highlight. */
  choose(choice) {
    const valid = choice && this.chips[choice.side][choice.index];
    this.shown = valid ? choice : null;
    for (const side of ["source", "target"]) {
      const weights = valid && side !== choice.side ? this.weightsOf(choice) : [];
      this.chips[side].forEach((chip, index) => {
        light(chip, weights[index] || 0);
        chip.classList.toggle("chosen", Boolean(valid) && side === choice.side && index === choice.index);
      });
    }
    this.lightMap();
    this.draw(this.shown);
    this.read();
  }

  /** Describes the highlighted weights in words. */
  read() {
    const { reading } = this.parts;
    if (!this.shown) return reading.replaceChildren();
    const other = this.shown.side === "target" ? "source" : "target";
    const weights = this.weightsOf(this.shown);
    let best = weights.map((weight, index) => index).sort((a, b) => weights[b] - weights[a]);
    best = this.shown.only === undefined ? best.slice(0, 3) : [this.shown.only];
    const entries = best
      .filter((index, rank) => rank === 0 || weights[index] >= VISIBLE)
      .flatMap((index, rank) => {
        return [rank ? ", " : "", isolated(this.content[other][index]), ` ${Math.round(weights[index] * 100)} %`];
      });
    const arrow = this.shown.side === "target" ? " looked at " : " was looked at by ";
    reading.replaceChildren(isolated(this.content[this.shown.side][this.shown.index]), arrow, ...entries);
  }

  /** Draws the links of the selected piece, or of all pieces, faintly. */
  draw(choice) {
    const { ribbons, links } = this.parts;
    const frame = ribbons.getBoundingClientRect();
    const ends = { source: "bottom", target: "top" };
    const points = {};
    for (const side of ["source", "target"]) {
      points[side] = this.chips[side].map((chip) => {
        const box = chip.getBoundingClientRect();
        return [(box.left + box.right) / 2 - frame.left, box[ends[side]] - frame.top];
      });
    }
    links.setAttribute("viewBox", `0 0 ${Math.max(frame.width, 1)} ${Math.max(frame.height, 1)}`);
    const paths = [];
    this.content.weights.forEach((row, target) => {
      row.forEach((weight, source) => {
        const belongs = !choice || choice.index === (choice.side === "target" ? target : source);
        if (weight >= VISIBLE && belongs) {
          paths.push(link(points.source[source], points.target[target], choice ? weight : weight * 0.45));
        }
      });
    });
    links.replaceChildren(...paths);
  }

  fillMap() {
    const { source, target, weights } = this.content;
    const head = document.createElement("tr");
    const corner = document.createElement("td");
    head.append(corner, ...source.map((piece, column) => heading(piece, "col", { column })));
    const rows = target.map((piece, row) => {
      const line = document.createElement("tr");
      line.append(heading(piece, "row", { row }), ...weights[row].map((weight, column) => cell(weight, row, column)));
      return line;
    });
    const [thead, tbody] = [document.createElement("thead"), document.createElement("tbody")];
    thead.append(head);
    tbody.append(...rows);
    this.parts.map.replaceChildren(thead, tbody);
    this.parts.map.style.setProperty("--columns", source.length);
  }

  lightMap() {
    const { shown } = this;
    this.parts.map.classList.toggle("choosing", Boolean(shown));
    for (const part of this.parts.map.querySelectorAll("[data-row], [data-column]")) {
      const at = shown && part.dataset[shown.side === "target" ? "row" : "column"];
      const only = shown && shown.only !== undefined && part.dataset.column !== undefined;
      const lit = shown && at === String(shown.index) && (!only || part.dataset.column === String(shown.only));
      part.classList.toggle("lit", Boolean(lit));
    }
  }
}

function chip(piece, next, index) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "piece";
  button.classList.toggle("begins", index === 0 || piece.startsWith(WORD_START) || piece in MARKS);
  button.classList.toggle("ends", next === undefined || next.startsWith(WORD_START) || next in MARKS);
  button.classList.toggle("mark", piece in MARKS);
  button.dataset.index = index;
  button.tabIndex = index ? -1 : 0;
  button.textContent = shownAs(piece);
  return button;
}

function light(chip, weight) {
  chip.style.setProperty("--weight", weight.toFixed(3));
  chip.classList.toggle("half", weight >= HALF);
  chip.classList.toggle("strong", weight >= STRONG);
}

function shownAs(piece) {
  return MARKS[piece] || piece.replaceAll(WORD_START, piece === WORD_START ? "␣" : "");
}

function isolated(piece) {
  const element = document.createElement("bdi");
  element.textContent = shownAs(piece);
  return element;
}

function link([x1, y1], [x2, y2], weight) {
  const path = document.createElementNS(SVG, "path");
  const middle = (y1 + y2) / 2;
  path.setAttribute("d", `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`);
  path.setAttribute("stroke-width", (0.75 + 2.5 * weight).toFixed(2));
  path.setAttribute("stroke-opacity", Math.min(0.15 + 0.85 * weight, 1).toFixed(2));
  return path;
}

function heading(piece, scope, place) {
  const element = document.createElement("th");
  element.scope = scope;
  element.textContent = shownAs(piece);
  Object.assign(element.dataset, place);
  return element;
}

function cell(weight, row, column) {
  const element = document.createElement("td");
  Object.assign(element.dataset, { row, column });
  element.style.setProperty("--weight", weight.toFixed(3));
  element.setAttribute("aria-label", `${Math.round(weight * 100)} %`);
  return element;
}
