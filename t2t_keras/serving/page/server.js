// Requests to the server, in TensorFlow Serving's REST interface.

import { taskOf } from "./tasks.js";

const KINDS = ["encoder", "decoder", "cross"];

/** A failed request. */
export class Failure extends Error {
  /**
   * @param {"away" | "busy" | "refused" | "broken"} kind - "away": there is no server; "busy": the server is full or
   *   stopping, so a retry may help; "refused": the request is invalid; "broken": the response is invalid.
   * @param {string} message - for the reader of the page.
   */
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }

  /** Whether the same request may succeed later. */
  get passes() {
    return this.kind === "away" || this.kind === "busy";
  }
}

/** The served model: its name, its version, and the inputs and outputs of its signatures. */
export class Model {
  /** Requests the description of the server's model. */
  static async load() {
    const about = await ask("server.json");
    const path = `v1/models/${encodeURIComponent(about.model)}`;
    const { model_spec: spec, metadata } = await ask(`${path}/metadata`);
    return new Model(about, path, spec.version, metadata.signature_def.signature_def);
  }

  constructor(about, path, version, signatures) {
    this.name = about.model;
    this.version = version;
    this.task = taskOf(about.task);
    /** The pairs of languages between which the model translates, if it needs a tag for the target language. */
    this.directions = about.directions ?? [];
    this.languages = this.directions[0] ?? [about.source_language, about.target_language];
    this.path = path;
    this.signatures = signatures;
    this.maxSentences = about.max_sentences || 32;
    const text = signatures.serving_default || { inputs: {}, outputs: {} };
    /** The name of the only input, if it is text, and of the output with the translation; undefined if missing. */
    this.input = Object.keys(text.inputs).length === 1 ? firstString(text.inputs) : undefined;
    this.output = "translation" in text.outputs ? "translation" : firstString(text.outputs);
  }

  /** The tag in front of each source, or "". */
  get tag() {
    return this.directions.length ? `<2${this.languages[1]}>` : "";
  }

  tagged(sentence) {
    return this.tag ? `${this.tag} ${sentence}` : sentence;
  }

  get translates() {
    return Boolean(this.input && this.output);
  }

  /** Whether there is a signature with exactly these inputs, and with these outputs. */
  gives(signature, inputs, outputs) {
    const { inputs: taken, outputs: returned } = this.signatures[signature] ?? { inputs: {}, outputs: {} };
    if (Object.keys(taken).sort().join() !== [...inputs].sort().join()) return false;
    return outputs.every((name) => name in returned);
  }

  /** Translates sentences. */
  async translate(sentences, signal) {
    const outputs = await this.predict("serving_default", { [this.input]: sentences.map((sentence) => this.tagged(sentence)) }, signal);
    const translations = Array.isArray(outputs) ? outputs : outputs[this.output];
    if (!Array.isArray(translations) || translations.length !== sentences.length) {
      throw new Failure("broken", "The model did not return one translation per sentence.");
    }
    return translations;
  }

  /** Whether translations can be streamed. */
  get streams() {
    return this.gives("stream_begin", [this.input], []) && "stream_advance" in this.signatures;
  }

  /** Translates a sentence; calls `seen` with each partial translation. */
  async stream(sentence, seen, signal) {
    const body = JSON.stringify({ inputs: { [this.input]: [this.tagged(sentence)] } });
    for await (const [name, data] of events(`${this.path}:stream`, { method: "POST", body, signal })) {
      if (name === "error") throw new Failure("broken", data.error);
      const text = (data.outputs[this.output] ?? data.outputs)[0];
      if (name === "end") return text;
      seen(text);
    }
    throw new Failure("away", "The server does not answer.");
  }

  /** The hypotheses of a sentence, best first: [{translation, score}]. */
  async alternatives(sentence, signal) {
    return hypotheses(await this.predict("nbest", { text: [this.tagged(sentence)] }, signal));
  }

  /** Whether the model continues a given beginning of a translation. */
  get offersWords() {
    return this.gives("alternatives", ["text", "prefix"], ["translations", "scores"]);
  }

  /** Translations of a sentence that begin with a text and continue with different words, best first. */
  async continuations(sentence, prefix, signal) {
    return hypotheses(await this.predict("alternatives", { text: [this.tagged(sentence)], prefix: [prefix] }, signal));
  }

  /** The pieces of a sentence and of its translation, and the weights of one head, [target piece][source piece]. */
  async alignment(sentence, signal) {
    const outputs = await this.predict("align", { text: [this.tagged(sentence)] }, signal);
    const [source, target] = [outputs.source_pieces[0], outputs.target_pieces[0]].map(withoutPadding);
    const first = this.tag && source[0]?.replace("▁", "") === this.tag ? 1 : 0; // the tag is not part of the text
    const weights = cut(outputs.attention[0], target, source).map((row) => row.slice(first));
    return { source: source.slice(first), target, heads: [weights] };
  }

  /** The number of layers of each kind of attention that the model offers. */
  async attentionLayers() {
    const outputs = ["query_pieces", "key_pieces", "attention", "num_layers"];
    // Attention belongs to the model's tokens, which a post-processed output no longer shows.
    if (this.task.finishes || !this.gives("attention", ["text", "target", "kind", "layer"], outputs)) return {};
    const [text, target] = [this.tagged("."), "."].map((each) => KINDS.map(() => each));
    const inputs = { text, target, kind: KINDS, layer: KINDS.map(() => 0) };
    const { num_layers: counts } = await this.predict("attention", inputs);
    return Object.fromEntries(KINDS.map((kind, at) => [kind, counts[at]]));
  }

  /** Like `alignment`, for a kind and a layer of attention; the keys are the source, the queries the target. */
  async attention(sentence, translation, { kind, layer }, signal) {
    const inputs = { text: [this.tagged(sentence)], target: [translation], kind: [kind], layer: [layer] };
    const outputs = await this.predict("attention", inputs, signal);
    const [source, target] = [outputs.key_pieces[0], outputs.query_pieces[0]].map(withoutPadding);
    // The weights of a head that this kind lacks are zeros.
    const heads = outputs.attention[0].filter((head) => head[0].some((weight) => weight > 0));
    return { source, target, heads: heads.map((head) => cut(head, target, source)) };
  }

  async predict(signature, inputs, signal) {
    const body = JSON.stringify({ signature_name: signature, inputs });
    const answer = await ask(`${this.path}:predict`, { method: "POST", body, signal });
    if (answer.outputs === undefined) throw new Failure("broken", "The server’s answer has no outputs.");
    return answer.outputs;
  }
}

/** The hypotheses of the only sentence; a missing one has the lowest float32 as its score. */
function hypotheses({ translations, scores }) {
  const entries = translations[0].map((translation, index) => ({ translation, score: scores[0][index] }));
  return entries.filter(({ score }) => score > -1e30);
}

function firstString(tensors) {
  return Object.keys(tensors).find((name) => tensors[name].dtype === "DT_STRING");
}

function cut(weights, target, source) {
  return weights.slice(0, target.length).map((row) => row.slice(0, source.length));
}

function withoutPadding(pieces) {
  const end = pieces.indexOf("");
  return end < 0 ? pieces : pieces.slice(0, end);
}

async function ask(path, options = {}) {
  const headers = options.body ? { "Content-Type": "application/json" } : {};
  let response, text;
  try {
    response = await fetch(path, { ...options, headers });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("away", "The server does not answer.");
  }
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    content = undefined;
  }
  if (response.ok && content !== undefined) return content;
  throw failure(response.status, (content && content.error) || "");
}

/** The server-sent events of a response, as pairs of a name, which may be "", and parsed JSON. */
async function* events(path, options) {
  const headers = { "Content-Type": "application/json" };
  let waiting = "";
  try {
    const response = await fetch(path, { ...options, headers });
    if (!response.ok) throw failure(response.status, "");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const blocks = (waiting + piece.value).split("\n\n");
      waiting = blocks.pop();
      for (const block of blocks) {
        const [, name, data] = block.match(/^(?:event: (.*)\n)?data: (.*)$/);
        yield [name ?? "", JSON.parse(data)];
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Failure) throw error;
    throw new Failure("away", "The server does not answer.");
  }
}

function failure(status, message) {
  if (status === 429 || status === 503) return new Failure("busy", "The server is busy.");
  if (status === 502 || status === 504) return new Failure("away", "The server does not answer in time.");
  if (status === 404) return new Failure("busy", "The server has not loaded the model yet.");
  if (status === 413) return new Failure("refused", "This is too long for one request.");
  if (status >= 400 && status < 500) return new Failure("refused", message || `The server refuses this (${status}).`);
  return new Failure("broken", message || `The server’s answer cannot be read (${status}).`);
}
