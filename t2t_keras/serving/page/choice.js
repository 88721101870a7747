// The choice of the attention to show: its kind, layer and head.

// The names of the kinds and of their ribbons; "" is the alignment, the only kind that every model has.
const KINDS = {
  "": {
    name: "Alignment",
    hint: "Where the model looked while it wrote.",
    keys: "Pieces of the text",
    queries: "Pieces of the translation",
  },
  cross: {
    name: "Translation to text",
    hint: "Where each piece of the translation, below, looked in the text, above.",
    keys: "Pieces of the text",
    queries: "Pieces of the translation",
  },
  encoder: {
    name: "Text to text",
    hint: "Where each piece of the text, below, looked in the text itself, above.",
    keys: "Pieces of the text that are looked at",
    queries: "Pieces of the text that look",
  },
  decoder: {
    name: "Translation to translation",
    hint: "Where the model looked in the translation so far, above, while it wrote each piece below.",
    keys: "Pieces of the translation that are looked at",
    queries: "Pieces of the translation that are written",
  },
};
const MEAN = "";
const AGAIN = 3000; // milliseconds before a retry if the server is busy

/** The fields of the choice; it gets its elements by name, and is independent of the page. */
export class AttentionChoice {
  /**
   * @param {{fields: HTMLElement, kind: HTMLSelectElement, layer: HTMLSelectElement, head: HTMLSelectElement,
   *   hint: HTMLElement, keys: HTMLElement, queries: HTMLElement}} parts
   * @param {{asked: () => void, headChosen: () => void}} listeners - called when a different answer is needed,
   *   and when a different head of the same answer is.
   */
  constructor(parts, { asked, headChosen }) {
    this.parts = parts;
    this.model = null;
    parts.kind.addEventListener("change", () => {
      this.describe();
      asked();
    });
    parts.layer.addEventListener("change", asked);
    parts.head.addEventListener("change", headChosen);
  }

  /** Switches to a model; the choice is hidden until its numbers of layers are known. */
  use(model) {
    this.model = model;
    this.layers = {};
    this.parts.fields.hidden = true;
    fill(this.parts.kind, [["", KINDS[""].name]]);
    this.describe();
    this.ask(model);
  }

  async ask(model) {
    try {
      const layers = await model.attentionLayers();
      if (model === this.model) this.offer(layers);
    } catch (error) {
      if (error.passes) setTimeout(() => model === this.model && this.ask(model), AGAIN);
    }
  }

  offer(layers) {
    this.layers = layers;
    const there = Object.keys(KINDS).filter((kind) => kind === "" || layers[kind]);
    fill(this.parts.kind, there.map((kind) => [kind, KINDS[kind].name]));
    this.parts.fields.hidden = there.length < 2;
  }

  /** The chosen kind and layer; null for the alignment. */
  get chosen() {
    const { kind, layer } = this.parts;
    return kind.value ? { kind: kind.value, layer: Number(layer.value) } : null;
  }

  /** Describes the chosen kind, and offers its layers; the default is the second to last. */
  describe() {
    const { kind, layer, head, hint, keys, queries } = this.parts;
    const count = this.layers[kind.value] || 0;
    const before = layer.value;
    fill(layer, Array.from({ length: count }, (_, at) => [String(at), `${at + 1} of ${count}`]));
    layer.value = Number(before) < count && before !== "" ? before : String(Math.max(count - 2, 0));
    for (const select of [layer, head]) select.parentElement.hidden = !kind.value;
    hint.textContent = KINDS[kind.value].hint;
    keys.setAttribute("aria-label", KINDS[kind.value].keys);
    queries.setAttribute("aria-label", KINDS[kind.value].queries);
  }

  /** The content of the picture: the weights of the chosen head, or the mean of all heads. */
  picture({ source, target, heads }) {
    const { head } = this.parts;
    const before = head.value;
    const numbers = heads.map((_, at) => [String(at), `${at + 1} of ${heads.length}`]);
    fill(head, [[MEAN, "mean"], ...numbers]);
    head.value = heads[before] ? before : MEAN;
    const weights = head.value === MEAN ? mean(heads) : heads[head.value];
    return { source, target, weights };
  }
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

function mean(heads) {
  return heads[0].map((row, query) => {
    return row.map((_, key) => heads.reduce((sum, head) => sum + head[query][key], 0) / heads.length);
  });
}
