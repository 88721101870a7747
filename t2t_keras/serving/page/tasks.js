// The texts and pictures of the page for each task; the default task is translation.

const SVG = "http://www.w3.org/2000/svg";
const CHARACTER = 8; // pixels
const GAP = 14; // between two words
const LEVEL = 38;
const CONTEXT = "<context>";

const TASKS = {
  translation: { title: "", source: "Text", target: "Translation", hint: "Each line is translated separately." },
  parsing: {
    title: "Parsing",
    source: "Sentences",
    target: "Trees",
    hint: "Each line is a sentence, with spaces around its punctuation.",
    examples: ["The dog barks .", "The mice that were treated lived longer ."],
    picture: { name: "Tree", hint: "The constituents of the sentence.", draw: drawTree },
    finishes: true,
  },
  classification: {
    title: "Classification",
    source: "Texts",
    target: "Labels",
    hint: "Each line is a separate text.",
    isProbability: true,
    finishes: true,
  },
  tagging: {
    title: "Tagging",
    source: "Sentences",
    target: "Labels",
    hint: "Each line is a sentence, with spaces around its punctuation.",
    picture: { name: "Labels of words", hint: "The label of each word.", draw: drawLabels },
    finishes: true,
  },
  summarisation: { title: "Summaries", source: "Texts", target: "Summaries", hint: "Each line is a separate text." },
  question_answering: {
    title: "Questions",
    source: "Questions and paragraphs",
    target: "Answers",
    hint: `Each line is a question, ${CONTEXT} and the paragraph that answers it.`,
    examples: [`When was it printed? ${CONTEXT} Ada wrote notes. In 1843 the notes were printed in London.`],
    none: "no answer",
    picture: { name: "Place of the answer", hint: "The answer in its paragraph.", draw: drawAnswer },
    finishes: true,
  },
  denoising: { title: "Restoring text", source: "Text with gaps", target: "Text", hint: "Write <mask> for what is missing." },
};

/**
 * The texts and the picture of a task.
 *
 * @returns {{title: string, source: string, target: string, hint: string, examples?: string[], none?: string,
 *   picture?: {name: string, hint: string, draw: (frame: HTMLElement, sentence: string, output: string) => void},
 *   isProbability?: boolean, finishes?: boolean}} `none` replaces an empty output; `isProbability` is whether scores
 *   are log-probabilities of whole answers; `finishes` is whether outputs are post-processed.
 */
export function taskOf(name) {
  return TASKS[name] || TASKS.translation;
}

function drawTree(frame, sentence, output) {
  const root = parsed(output);
  const parts = [];
  let right = GAP;
  let deepest = 0;
  /** Places a part with its words from left to right, and returns its centre. */
  const place = (part, depth) => {
    deepest = Math.max(deepest, depth);
    if (!part.children.length) {
      const width = CHARACTER * part.label.length;
      right += width + GAP;
      parts.push({ x: right - GAP - width / 2, depth, text: part.label, kind: part.isWord ? "word" : "label" });
      return parts.at(-1);
    }
    const below = part.children.map((child) => place(child, depth + 1));
    const node = { x: (below[0].x + below.at(-1).x) / 2, depth, text: part.label, kind: "label", below };
    parts.push(node);
    return node;
  };
  place(root, 0);
  const picture = shape("svg", { width: right, height: (deepest + 1) * LEVEL, role: "img", "aria-label": output });
  picture.classList.add("tree");
  for (const { x, depth, below = [] } of parts) {
    for (const child of below) {
      picture.append(shape("line", { x1: x, y1: depth * LEVEL + 22, x2: child.x, y2: child.depth * LEVEL + 6 }));
    }
  }
  for (const { x, depth, text, kind } of parts) {
    const label = shape("text", { x, y: depth * LEVEL + 18, class: kind });
    label.textContent = text;
    picture.append(label);
  }
  frame.replaceChildren(picture);
}

/** Parses a bracketed tree; the placeholder XX for a part of speech is replaced by its word. */
function parsed(text) {
  const top = { label: "", children: [] };
  const open = [top];
  const tokens = text.match(/[()]|[^\s()]+/g) || [];
  tokens.forEach((token, at) => {
    if (token === "(") {
      const part = { label: "", children: [] };
      open.at(-1).children.push(part);
      open.push(part);
    } else if (token === ")") {
      if (open.length > 1) open.pop();
    } else if (tokens[at - 1] === "(") open.at(-1).label = token;
    else open.at(-1).children.push({ label: token, children: [], isWord: true });
  });
  return plain(top.children.length === 1 ? top.children[0] : top);
}

function plain(part) {
  const children = part.children.map(plain);
  const [only] = children;
  if (part.label === "XX" && children.length === 1 && only.isWord) return only;
  return { ...part, children };
}

function drawLabels(frame, sentence, output) {
  const words = sentence.split(/\s+/).filter(Boolean);
  const labels = output.split(/\s+/).filter(Boolean);
  const row = document.createElement("p");
  row.className = "labels";
  row.dir = "auto";
  words.forEach((word, at) => {
    const label = labels[at] || "";
    const kind = label.replace(/^[BI]-/, "");
    const element = document.createElement("span");
    element.textContent = word;
    if (kind && kind !== "O") {
      const name = document.createElement("small");
      name.textContent = label;
      element.className = "labelled";
      element.style.setProperty("--hue", String(hue(kind)));
      element.append(name);
    }
    row.append(element, " ");
  });
  frame.replaceChildren(row);
}

/** The hue of a label, always the same. */
function hue(name) {
  return [...name].reduce((sum, character) => (sum * 31 + character.codePointAt(0)) % 360, 7);
}

function drawAnswer(frame, sentence, output) {
  const [, ...rest] = sentence.split(CONTEXT);
  const paragraph = rest.join(CONTEXT).trim();
  const escaped = (output ?? "").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const found = output ? paragraph.match(new RegExp(escaped, "iu")) : null;
  const text = document.createElement("p");
  text.dir = "auto";
  if (!found) text.textContent = paragraph;
  else {
    const mark = document.createElement("mark");
    mark.textContent = found[0];
    text.append(paragraph.slice(0, found.index), mark, paragraph.slice(found.index + found[0].length));
  }
  frame.replaceChildren(text);
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
