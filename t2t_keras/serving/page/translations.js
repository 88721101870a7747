// Requests the translations of sentences. Answers are stored by sentence, so a late answer is never shown for a
// different text.

import { Failure } from "./server.js";

const TOGETHER = 8; // sentences per request, so that the first ones of a long text appear early
const AT_ONCE = 2; // concurrent requests
const KEPT = 500; // answers
const LONGEST_WAIT = 30; // seconds between two attempts

/** The translations of the current sentences and of earlier ones. */
export class Translations {
  /**
   * @param {() => void} changed - called whenever there are new answers.
   * @param {(trouble: {message: string, seconds: number} | null) => void} troubled - called when the server fails,
   *   with the time until the next attempt, and with null once it responds.
   */
  constructor(changed, troubled) {
    this.changed = changed;
    this.troubled = troubled;
    this.model = null;
    /** Distinct sentences, in the order of the text. */
    this.wanted = new Set();
    this.answers = new Map();
    this.partial = new Map();
    this.separate = new Set();
    this.underWay = new Set();
    this.failures = 0;
    this.timer = 0;
  }

  /** Switches to a model, and drops the answers of the previous one. */
  use(model) {
    this.model = model;
    this.answers.clear();
    this.separate.clear();
    for (const request of this.underWay) request.controller.abort();
    this.again();
  }

  /**
   * {translation} or {error} of a sentence, or undefined while there is neither. If the reader has changed the
   * translation, `original` is the model's.
   */
  of(sentence) {
    return this.answers.get(sentence);
  }

  /** Replaces the translation of a sentence; "" restores the translation of the model. */
  choose(sentence, translation) {
    const before = this.answers.get(sentence);
    if (!before || before.error) return;
    const original = before.original ?? before.translation;
    const isChanged = translation && translation !== original;
    this.answers.set(sentence, isChanged ? { translation, original } : { translation: original });
    this.changed();
  }

  /** The partial translation of a sentence that is being streamed, or "". */
  soFar(sentence) {
    return this.partial.get(sentence) ?? "";
  }

  /** Requests the missing translations of these sentences; cancels requests that concern none of them. */
  want(sentences) {
    this.wanted = new Set(sentences);
    for (const request of this.underWay) {
      if (!request.sentences.some((sentence) => this.wanted.has(sentence))) request.controller.abort();
    }
    this.pump();
  }

  /** Retries immediately. */
  again() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.pump();
  }

  pump() {
    while (this.model && !this.timer && this.underWay.size < AT_ONCE) {
      const sentences = this.next();
      if (!sentences.length) return;
      this.send(sentences);
    }
  }

  /** The sentences of the next request: several, or a single one that was refused together with others. */
  next() {
    const pending = new Set([...this.underWay].flatMap((request) => request.sentences));
    const most = Math.min(TOGETHER, this.model.maxSentences);
    const sentences = [];
    for (const sentence of this.wanted) {
      if (sentences.length === most) break;
      if (this.answers.has(sentence) || pending.has(sentence)) continue;
      if (!this.separate.has(sentence)) sentences.push(sentence);
      else if (!sentences.length) return [sentence];
    }
    return sentences;
  }

  async send(sentences) {
    const { model } = this;
    const request = { sentences, controller: new AbortController() };
    this.underWay.add(request);
    try {
      const results = await this.translate(sentences, request.controller.signal);
      if (model === this.model) sentences.forEach((sentence, at) => this.keep(sentence, { translation: results[at] }));
      this.failures = 0;
      clearTimeout(this.timer);
      this.timer = 0;
      this.troubled(null);
    } catch (error) {
      this.failed(sentences, error);
    } finally {
      this.underWay.delete(request);
      sentences.forEach((sentence) => this.partial.delete(sentence));
      this.changed();
      this.pump();
    }
  }

  /** Translates sentences; streams the translation of a single one if possible. */
  async translate(sentences, signal) {
    const { model } = this;
    if (sentences.length > 1 || !model.streams) return model.translate(sentences, signal);
    const [sentence] = sentences;
    try {
      return [await model.stream(sentence, (text) => this.see(sentence, text), signal)];
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return model.translate(sentences, signal); // or reports the reason
    }
  }

  see(sentence, text) {
    this.partial.set(sentence, text);
    this.changed();
  }

  failed(sentences, error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Failure)) {
      sentences.forEach((sentence) => this.keep(sentence, { error: "The server’s answer cannot be read." }));
      throw error;
    }
    if (error.passes) this.wait(error.message);
    else if (sentences.length > 1) sentences.forEach((sentence) => this.separate.add(sentence));
    else this.keep(sentences[0], { error: error.message });
  }

  /** Waits before the next attempt, longer each time. */
  wait(message) {
    const seconds = Math.min(2 ** this.failures++, LONGEST_WAIT);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), seconds * 1000);
    this.troubled({ message, seconds });
  }

  keep(sentence, answer) {
    this.answers.set(sentence, answer);
    for (const old of this.answers.keys()) {
      // The current sentences stay, regardless of their number.
      if (this.answers.size <= Math.max(KEPT, this.wanted.size)) return;
      if (!this.wanted.has(old)) this.answers.delete(old);
    }
  }
}
