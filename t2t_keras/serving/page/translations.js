// Which sentences are asked for, and when. Answers are kept by the sentence they are of, so that one that comes late
// can never stand beside another text.

import { Failure } from "./server.js";

const TOGETHER = 8; // sentences a request: the first of a long text appear before the last
const AT_ONCE = 2; // requests under way
const KEPT = 500; // answers
const LONGEST_WAIT = 30; // seconds between two tries

/** The translations of the sentences that are wanted now, and of earlier ones. */
export class Translations {
  /**
   * @param {() => void} changed - is called whenever there are new answers.
   * @param {(trouble: {message: string, seconds: number} | null) => void} troubled - is called when the server cannot be
   *   had, with the time until the next try, and with null once it answers.
   */
  constructor(changed, troubled) {
    this.changed = changed;
    this.troubled = troubled;
    this.model = null;
    /** Distinct sentences, in the order of the text. */
    this.wanted = new Set();
    this.answers = new Map();
    this.growing = new Map();
    this.alone = new Set();
    this.underWay = new Set();
    this.failures = 0;
    this.timer = 0;
  }

  /** Takes another model, of which nothing is known yet. */
  use(model) {
    this.model = model;
    this.answers.clear();
    this.alone.clear();
    for (const request of this.underWay) request.controller.abort();
    this.again();
  }

  /**
   * {translation} or {error} of a sentence, or undefined while there is neither; a translation in which the reader has had
   * a part has as `own` what the model gave.
   */
  of(sentence) {
    return this.answers.get(sentence);
  }

  /** Has a sentence be translated otherwise; "" brings back what the model gave. */
  choose(sentence, translation) {
    const before = this.answers.get(sentence);
    if (!before || before.error) return;
    const own = before.own ?? before.translation;
    this.answers.set(sentence, translation && translation !== own ? { translation, own } : { translation: own });
    this.changed();
  }

  /** As much as there is of a sentence's translation while it is made, or "". */
  soFar(sentence) {
    return this.growing.get(sentence) ?? "";
  }

  /** Asks for what is not known yet of these sentences; requests for none of them are given up. */
  want(sentences) {
    this.wanted = new Set(sentences);
    for (const request of this.underWay) {
      if (!request.sentences.some((sentence) => this.wanted.has(sentence))) request.controller.abort();
    }
    this.pump();
  }

  /** Tries at once, whatever has failed before. */
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

  /** The sentences of the next request: several, but those alone that were refused together with others. */
  next() {
    const asked = new Set([...this.underWay].flatMap((request) => request.sentences));
    const most = Math.min(TOGETHER, this.model.maxSentences);
    const found = [];
    for (const sentence of this.wanted) {
      if (found.length === most) break;
      if (this.answers.has(sentence) || asked.has(sentence)) continue;
      if (!this.alone.has(sentence)) found.push(sentence);
      else if (!found.length) return [sentence];
    }
    return found;
  }

  async send(sentences) {
    const { model } = this;
    const request = { sentences, controller: new AbortController() };
    this.underWay.add(request);
    try {
      const found = await this.found(sentences, request.controller.signal);
      if (model === this.model) sentences.forEach((sentence, at) => this.keep(sentence, { translation: found[at] }));
      this.failures = 0;
      clearTimeout(this.timer);
      this.timer = 0;
      this.troubled(null);
    } catch (error) {
      this.failed(sentences, error);
    } finally {
      this.underWay.delete(request);
      sentences.forEach((sentence) => this.growing.delete(sentence));
      this.changed();
      this.pump();
    }
  }

  /** The translations of sentences: of one as it grows, if that can be had. */
  async found(sentences, signal) {
    const { model } = this;
    if (sentences.length > 1 || !model.grows) return model.translate(sentences, signal);
    const [sentence] = sentences;
    try {
      return [await model.grow(sentence, (text) => this.see(sentence, text), signal)];
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return model.translate(sentences, signal); // or it says why not
    }
  }

  see(sentence, text) {
    this.growing.set(sentence, text);
    this.changed();
  }

  failed(sentences, error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Failure)) {
      sentences.forEach((sentence) => this.keep(sentence, { error: "The server’s answer cannot be read." }));
      throw error;
    }
    if (error.passes) this.wait(error.message);
    else if (sentences.length > 1) sentences.forEach((sentence) => this.alone.add(sentence));
    else this.keep(sentences[0], { error: error.message });
  }

  /** Waits before the next try, longer each time. */
  wait(message) {
    const seconds = Math.min(2 ** this.failures++, LONGEST_WAIT);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), seconds * 1000);
    this.troubled({ message, seconds });
  }

  keep(sentence, answer) {
    this.answers.set(sentence, answer);
    for (const old of this.answers.keys()) {
      // All that are wanted are kept, however many.
      if (this.answers.size <= Math.max(KEPT, this.wanted.size)) return;
      if (!this.wanted.has(old)) this.answers.delete(old);
    }
  }
}
