// The words of one translation, and the words that could replace each of them.

const KEPT = 200; // answers

/** The card with the words of a translation; it gets its elements by name, and is independent of the page. */
export class Words {
  /**
   * @param {{card: HTMLElement, words: HTMLElement, others: HTMLElement, note: HTMLElement, back: HTMLButtonElement}} parts
   * @param {(sentence: string, translation: string) => void} chosen - called with a sentence and the
   *   translation that the reader chose, or "" for the translation of the model.
   */
  constructor(parts, chosen) {
    this.parts = parts;
    this.chosen = chosen;
    this.model = null;
    this.sentence = this.translation = "";
    /** The index of the selected word, or -1. */
    this.at = -1;
    /** The index of the word that gets the focus once the words are replaced, or -1. */
    this.next = -1;
    this.known = new Map();
    this.controller = new AbortController();
    parts.words.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.look(Number(button.dataset.index));
    });
    parts.words.addEventListener("keydown", (event) => this.move(event));
    parts.back.addEventListener("click", () => this.choose("", 0));
  }

  /** Switches to a model, and drops the answers of the previous one. */
  use(model) {
    this.model = model;
    this.controller.abort(); // the request concerns the previous model
    this.known.clear();
    this.of("", "", false);
  }

  /** Shows a sentence's translation word by word; `isChosen` is whether the reader has changed it. */
  of(sentence, translation, isChosen) {
    const { card, words, back } = this.parts;
    card.hidden = !translation || !this.model?.offersWords;
    back.hidden = !isChosen;
    if (sentence === this.sentence && translation === this.translation) return;
    const isSame = sentence === this.sentence;
    const at = isSame ? this.at : -1;
    this.sentence = sentence;
    this.translation = translation;
    this.spans = spansOf(translation);
    words.replaceChildren(...this.spans.map(({ word }, index) => wordButton(word, index)));
    this.mark(at < this.spans.length ? at : -1);
    this.show([]);
    if (isSame && this.next >= 0) this.focus(Math.min(this.next, this.spans.length - 1));
    this.next = -1;
  }

  /** Shows the words that could replace a word, given its index. */
  async look(index) {
    if (!this.spans?.[index] || this.parts.card.hidden) return;
    this.mark(index);
    this.show([]);
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    const { sentence, translation } = this;
    const { word, start } = this.spans[index];
    const prefix = translation.slice(0, start).trimEnd();
    const isOther = () => signal.aborted || sentence !== this.sentence || translation !== this.translation;
    this.say("…");
    try {
      const found = await this.ask(sentence, prefix, signal);
      if (isOther()) return;
      const others = otherWords(found, prefix, word);
      this.show(others);
      const number = others.length === 1 ? "1 other word" : `${others.length} other words`;
      this.say(others.length ? `${number} in place of “${word}”` : `No other word is available in place of “${word}”.`);
    } catch (error) {
      if (!isOther()) this.say(error.message);
    }
  }

  /** Sets the sentence's translation, and the word that gets the focus in place of the pressed button. */
  choose(translation, next) {
    this.next = next;
    this.chosen(this.sentence, translation);
  }

  /** Shows the words that could replace the word at a character of the translation. */
  lookAt(offset) {
    this.look(this.spans?.findLastIndex(({ start }) => start <= offset) ?? -1);
  }

  async ask(sentence, prefix, signal) {
    const key = JSON.stringify([sentence, prefix]);
    if (!this.known.has(key)) {
      const found = await this.model.continuations(sentence, prefix, signal);
      this.known.set(key, found);
      if (this.known.size > KEPT) this.known.delete(this.known.keys().next().value);
    }
    return this.known.get(key);
  }

  /** Marks the selected word, and makes it the only one that the tab key reaches. */
  mark(index) {
    this.at = index;
    [...this.parts.words.children].forEach((button, at) => {
      button.setAttribute("aria-pressed", String(at === index));
      button.tabIndex = at === Math.max(index, 0) ? 0 : -1;
    });
  }

  show(others) {
    this.parts.others.replaceChildren(...others.map((other) => this.item(other)));
    if (!others.length) this.say("");
  }

  item({ translation, word, rest }) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const first = document.createElement("b");
    button.type = "button";
    button.dir = "auto";
    first.textContent = word;
    button.append(first, rest);
    button.addEventListener("click", () => this.choose(translation, this.at));
    item.append(button);
    return item;
  }

  /** Moves the focus among the words with the arrow keys. */
  move(event) {
    const buttons = [...this.parts.words.children];
    const at = buttons.indexOf(document.activeElement);
    const onward = getComputedStyle(this.parts.words).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: at + onward, ArrowLeft: at - onward, Home: 0, End: buttons.length - 1 };
    if (!(event.key in steps) || at < 0) return;
    event.preventDefault();
    this.focus(Math.min(Math.max(steps[event.key], 0), buttons.length - 1));
  }

  focus(index) {
    const buttons = [...this.parts.words.children];
    buttons.forEach((button, at) => (button.tabIndex = at === index ? 0 : -1));
    buttons[index]?.focus();
  }

  say(message) {
    this.parts.note.textContent = message;
  }
}

/** The words of a text, separated by white space: [{word, start}]. */
function spansOf(text) {
  return [...text.matchAll(/\S+/gu)].map((match) => ({ word: match[0], start: match.index }));
}

/** The best continuation of a beginning for each next word except `word`. */
function otherWords(found, prefix, word) {
  const others = new Map();
  for (const { translation } of found) {
    if (!translation.startsWith(prefix)) continue;
    const rest = translation.slice(prefix.length).trimStart();
    const [next] = rest.split(/\s/u, 1);
    if (next && next !== word && !others.has(next)) others.set(next, { translation, word: next, rest: rest.slice(next.length) });
  }
  return [...others.values()];
}

function wordButton(word, index) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "word";
  button.dir = "auto";
  button.dataset.index = index;
  button.textContent = word;
  return button;
}
