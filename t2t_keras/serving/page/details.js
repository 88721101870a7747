// The cards below the text: other words, alternatives and attention of one sentence.

import { alternativesHint, showAlternatives } from "./alternatives.js";
import { AttentionPicture } from "./attention.js";
import { AttentionChoice } from "./choice.js";
import { Words } from "./words.js";

const element = (id) => document.getElementById(id);
const PAUSE = 300; // milliseconds without a change of the sentence before its details are requested
const AGAIN = 3000; // milliseconds before a retry if the server is busy
const KEPT = 100; // answers of each kind

/** The details of one sentence. */
export class Details {
  /** @param {(sentence: string, translation: string) => void} chosen - see `Words`. */
  constructor(chosen) {
    this.model = null;
    this.sentence = "";
    this.translation = "";
    this.isChosen = false;
    this.asking = false;
    this.timer = 0;
    this.controller = new AbortController();
    const picture = new AttentionPicture({
      ribbons: element("ribbons"),
      links: element("links"),
      source: element("source-pieces"),
      target: element("target-pieces"),
      map: element("map"),
      reading: element("reading"),
    });
    const choice = new AttentionChoice(
      {
        fields: element("attention-choice"),
        kind: element("attention-kind"),
        layer: element("attention-layer"),
        head: element("attention-head"),
        hint: element("attention-kind-hint"),
        keys: element("source-pieces"),
        queries: element("target-pieces"),
      },
      { asked: () => this.askAnew("attention"), headChosen: () => this.showAnew("attention") },
    );
    this.choice = choice;
    this.words = new Words(
      {
        card: element("words"),
        words: element("words-list"),
        others: element("words-others"),
        note: element("words-note"),
        back: element("words-back"),
      },
      chosen,
    );
    this.cards = [
      {
        name: "alternatives",
        signature: "nbest",
        outputs: ["translations", "scores"],
        absent: "This model returns only one translation per sentence.",
        ask: (signal) => this.model.alternatives(this.sentence, signal),
        show: (found) => showAlternatives(element("alternatives-list"), found, this.model.task),
      },
      {
        name: "attention",
        signature: "align",
        outputs: ["source_pieces", "target_pieces", "attention"],
        absent: "This model does not return its attention.",
        ask: (signal) => {
          if (!choice.chosen) return this.model.alignment(this.sentence, signal);
          return this.model.attention(this.sentence, this.translation, choice.chosen, signal);
        },
        show: (found) => picture.show(choice.picture(found)),
      },
    ];
    for (const card of this.cards) card.known = new Map();
  }

  /** Switches to a model; cards whose signature it lacks say so. */
  use(model) {
    this.model = model;
    this.sentence = "";
    clearTimeout(this.timer); // the requests concern the previous model
    this.controller.abort();
    for (const card of this.cards) {
      card.known.clear();
      card.there = model.gives(card.signature, ["text"], card.outputs);
      this.say(card, card.there ? "" : card.absent);
    }
    this.choice.use(model);
    this.words.use(model);
    const { picture, isProbability } = model.task;
    element("alternatives-hint").textContent = alternativesHint(isProbability);
    element("picture").hidden = !picture;
    element("picture-label").textContent = picture ? picture.name : "";
    element("picture-hint").textContent = picture ? picture.hint : "";
  }

  /**
   * Shows a sentence with its translation; "" shows none. Requests missing details once the sentence has stayed for a
   * moment. `isChosen` is whether the reader has changed the translation.
   */
  of(sentence, translation, isChosen = false) {
    const cards = this.cards.filter((card) => card.there);
    const { picture } = this.model ? this.model.task : {};
    element("details").hidden = !sentence || !(cards.length || picture || this.model?.offersWords);
    this.words.of(sentence, sentence && translation, isChosen);
    if (sentence && picture) picture.draw(element("picture-frame"), sentence, translation);
    const isNew = translation !== this.translation;
    [this.translation, this.isChosen] = [translation, isChosen];
    // The attention of a chosen layer depends on the translation.
    if (sentence && sentence === this.sentence && isNew && this.choice.chosen) return this.askAnew("attention");
    if (sentence === this.sentence) return this.busy(this.asking);
    this.sentence = sentence;
    clearTimeout(this.timer);
    this.controller.abort();
    this.controller = new AbortController();
    const missing = sentence ? cards.filter((card) => !card.known.has(sentence)) : [];
    this.asking = missing.length > 0;
    this.busy(this.asking);
    if (missing.length) this.timer = setTimeout(() => this.ask(missing, sentence), PAUSE);
    else if (sentence) cards.forEach((card) => card.show(card.known.get(sentence)));
  }

  /** Drops the answers of a card and requests new ones, because the reader made a different choice. */
  askAnew(name) {
    const { sentence, translation, isChosen } = this;
    this.cards.find((card) => card.name === name).known.clear();
    this.sentence = "";
    if (sentence) this.of(sentence, translation, isChosen);
  }

  showAnew(name) {
    const card = this.cards.find((card) => card.name === name);
    if (card.known.has(this.sentence)) card.show(card.known.get(this.sentence));
  }

  async ask(missing, sentence) {
    const { signal } = this.controller;
    const failures = await Promise.all(missing.map((card) => this.askFor(card, sentence, signal)));
    // The sentence has changed meanwhile: the answers are stored, but not shown.
    if (signal.aborted || sentence !== this.sentence) return;
    this.asking = false;
    this.busy(false);
    for (const card of this.cards) if (card.known.has(sentence)) card.show(card.known.get(sentence));
    const again = missing.filter((card, at) => failures[at] && failures[at].passes);
    if (again.length) this.timer = setTimeout(() => this.ask(again, sentence), AGAIN);
  }

  /** Requests the content of one card; returns the error, which the card shows, or null. */
  async askFor(card, sentence, signal) {
    try {
      const found = await card.ask(signal);
      if (!signal.aborted) this.keep(card, sentence, found);
    } catch (error) {
      if (error.name === "AbortError") return null;
      if (!signal.aborted) this.say(card, error.message);
      return error;
    }
    return null;
  }

  keep(card, sentence, found) {
    card.known.set(sentence, found);
    if (card.known.size > KEPT) card.known.delete(card.known.keys().next().value);
    this.say(card, "");
  }

  /** Shows on a card why it is empty; "" shows its content. */
  say(card, message) {
    const note = element(`${card.name}-none`);
    note.textContent = message;
    note.hidden = !message;
    element(card.name).classList.toggle("empty", Boolean(message));
  }

  /** Marks the details as outdated or as current. */
  busy(whether) {
    element("details").setAttribute("aria-busy", String(whether));
  }
}
