// The cards below the text: other words, alternatives and attention of one sentence.

import { alternativesHint, showAlternatives } from "./alternatives.js";
import { AttentionPicture } from "./attention.js";
import { AttentionChoice } from "./choice.js";
import { Words } from "./words.js";

const element = (id) => document.getElementById(id);
const PAUSE = 300; // milliseconds that a sentence stays the same before it is looked at more closely
const AGAIN = 3000; // milliseconds after which a server that was busy is asked again
const KEPT = 100; // answers of each kind

/** What there is to know of one sentence. */
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
        absent: "This model gives one translation a sentence and no others.",
        ask: (signal) => this.model.alternatives(this.sentence, signal),
        show: (found) => showAlternatives(element("alternatives-list"), found, this.model.task),
      },
      {
        name: "attention",
        signature: "align",
        outputs: ["source_pieces", "target_pieces", "attention"],
        absent: "This model does not tell where it looked.",
        ask: (signal) => {
          if (!choice.chosen) return this.model.alignment(this.sentence, signal);
          return this.model.attention(this.sentence, this.translation, choice.chosen, signal);
        },
        show: (found) => picture.show(choice.picture(found)),
      },
    ];
    for (const card of this.cards) card.known = new Map();
  }

  /** Takes another model; cards that it has no signature for say so. */
  use(model) {
    this.model = model;
    this.sentence = "";
    clearTimeout(this.timer); // what was asked of the model before is not of this one
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
   * Shows a sentence, whose translation is given, with whether the reader has had a part in it; "" shows none. Asks for
   * what is not known once the sentence has stayed for a moment.
   */
  of(sentence, translation, isChosen = false) {
    const cards = this.cards.filter((card) => card.there);
    const { picture } = this.model ? this.model.task : {};
    element("details").hidden = !sentence || !(cards.length || picture || this.model?.offersWords);
    this.words.of(sentence, sentence && translation, isChosen);
    if (sentence && picture) picture.draw(element("picture-frame"), sentence, translation);
    const isNew = translation !== this.translation;
    [this.translation, this.isChosen] = [translation, isChosen];
    // Which words attention is between depends on the translation, where the reader says what to show.
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

  /** Forgets the answers of a card and asks again, because another choice has been made. */
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
    // Another sentence has been chosen meanwhile: the answers are kept, not shown.
    if (signal.aborted || sentence !== this.sentence) return;
    this.asking = false;
    this.busy(false);
    for (const card of this.cards) if (card.known.has(sentence)) card.show(card.known.get(sentence));
    const again = missing.filter((card, at) => failures[at] && failures[at].passes);
    if (again.length) this.timer = setTimeout(() => this.ask(again, sentence), AGAIN);
  }

  /** Asks for one card; the failure is the result, and stands on the card. */
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

  /** Says on a card why it is empty; "" shows what it is for. */
  say(card, message) {
    const note = element(`${card.name}-none`);
    note.textContent = message;
    note.hidden = !message;
    element(card.name).classList.toggle("empty", Boolean(message));
  }

  /** Whether what is shown is of another sentence than the one it is to be of. */
  busy(whether) {
    element("details").setAttribute("aria-busy", String(whether));
  }
}
