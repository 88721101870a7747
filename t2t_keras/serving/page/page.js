// The page: a text, its translation as it is typed, and one of its sentences in detail.

import { Details } from "./details.js";
import { Model } from "./server.js";
import { Translations } from "./translations.js";

const element = (id) => document.getElementById(id);
const PAUSE = 180; // milliseconds without a key before a text is translated
const EXAMPLES = {
  en: ["A man in a blue shirt is standing on a ladder.", "Two dogs play in the snow.", "A little girl is eating an apple."],
  de: ["Ein Mann in einem blauen Hemd steht auf einer Leiter.", "Zwei Hunde spielen im Schnee."],
};

const source = element("source");
const target = element("target");
const translations = new Translations(renderSoon, (trouble) => {
  showTrouble(trouble);
  if (trouble) refresh(); // the model may have a different name by now
});
const details = new Details((sentence, translation) => translations.choose(sentence, translation));
let model = null;
let typing = 0;
/** The index of the line that is shown in detail. */
let current = 0;
let frame = 0;
const BLANK = { translation: "" };

/** The lines of the text, without the spaces around them. */
function sentences() {
  return source.value.split("\n").map((line) => line.trim());
}

function typed() {
  element("clear").hidden = !source.value;
  element("examples").hidden = Boolean(source.value) || !element("examples").children.length;
  clearTimeout(typing);
  typing = setTimeout(() => translations.want(sentences().filter(Boolean)), PAUSE);
  followCaret();
}

function followCaret() {
  current = source.value.slice(0, source.selectionStart).split("\n").length - 1;
  render();
}

/** The index of the line to show in detail: the current line, or the nearest line with text above or below it. */
function detailed(lines) {
  const filled = lines.map((line, at) => (line ? at : -1)).filter((at) => at >= 0);
  return filled.findLast((at) => at <= current) ?? filled[0] ?? -1;
}

/** Renders all changes within a frame at once. */
function renderSoon() {
  frame ||= requestAnimationFrame(render);
}

function render() {
  cancelAnimationFrame(frame);
  frame = 0;
  const lines = source.value.trim() ? sentences() : [];
  const several = lines.filter(Boolean).length > 1;
  const at = detailed(lines);
  while (target.children.length > lines.length) target.lastChild.remove();
  while (target.children.length < lines.length) target.append(row(target.children.length));
  target.classList.toggle("several", several);
  lines.forEach((line, number) => fill(target.children[number], line, several, number === at));
  element("copy").disabled = !lines.some((line) => translations.of(line)?.translation);
  const answer = at < 0 ? undefined : translations.of(lines[at]);
  const isThere = answer?.translation || (answer?.translation === "" && model.task.none);
  if (at < 0 || answer) details.of(isThere ? lines[at] : "", answer?.translation, answer?.original !== undefined);
  else details.busy(true);
}

function row(number) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "number";
  button.textContent = number + 1;
  button.setAttribute("aria-label", `Line ${number + 1} in detail`);
  const text = document.createElement("span");
  text.dir = "auto";
  item.append(button, text);
  item.addEventListener("click", (event) => {
    // A selection in a translation is meant to be copied.
    if (event.target === text && !getSelection().isCollapsed) return;
    current = number;
    render();
    const offset = event.target === text ? offsetIn(text, event) : -1;
    // Until the line has an answer, the words are those of a different line.
    if (offset >= 0 && details.words.sentence === sentences()[number]) details.words.lookAt(offset);
  });
  return item;
}

/** The index of the character under the pointer in an element's text, or -1. */
function offsetIn(element, { clientX, clientY }) {
  const place = document.caretPositionFromPoint?.(clientX, clientY);
  const range = place ? null : document.caretRangeFromPoint?.(clientX, clientY);
  const [node, offset] = place ? [place.offsetNode, place.offset] : [range?.startContainer, range?.startOffset];
  return node?.parentNode === element ? offset : -1;
}

/** Shows the answer for a line; until there is one, shows the previous or the partial answer as waiting. */
function fill(item, line, several, chosen) {
  const answer = line ? translations.of(line) : BLANK;
  const soFar = answer ? "" : translations.soFar(line);
  const state = [line, answer, soFar, several, chosen];
  if (item.state?.every((value, at) => value === state[at])) return;
  item.state = state;
  const [button, text] = item.children;
  button.hidden = !several || !line;
  button.setAttribute("aria-pressed", String(several && chosen));
  item.classList.toggle("current", several && chosen);
  text.classList.toggle("waiting", !answer);
  text.classList.toggle("refused", Boolean(answer?.error));
  const empty = (line && model?.task.none) || "";
  // The previous text stays as long as the new one may still become equal to it.
  const before = text.textContent.startsWith(soFar) ? text.textContent : soFar;
  const shown = answer ? (answer.error ?? (answer.translation || empty)) : before || "…";
  // Screen readers announce a changed text only once it is complete.
  text.setAttribute("aria-busy", String(!answer));
  if (text.textContent !== shown) text.textContent = shown;
}

function showTrouble(trouble) {
  element("dot").classList.toggle("away", Boolean(trouble));
  element("problem").hidden = !trouble;
  if (!trouble) return;
  const when = trouble.seconds === undefined ? "" : ` Trying again in ${trouble.seconds} s.`;
  element("problem-text").textContent = trouble.message + when;
  element("again").hidden = trouble.seconds === undefined;
}

async function copy() {
  const lines = sentences().map((line) => translations.of(line)?.translation ?? "");
  const text = lines.join("\n").trimEnd();
  const button = element("copy");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // The origin is not secure, or access is denied. The reader can copy the selection.
    getSelection().selectAllChildren(target);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

function replaceText(text) {
  source.value = text;
  source.focus();
  typed();
}

function languageName(code) {
  try {
    return code && new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return "";
  }
}

function introduce() {
  const { task } = model;
  const [from, to] = model.languages.map(languageName);
  element("source-label").textContent = (!task.title && from) || task.source;
  element("target-label").textContent = (!task.title && to) || task.target;
  element("hint").textContent = task.hint;
  document.title = task.title || (from && to ? `${from} to ${to}` : "Translation");
  element("heading").textContent = document.title;
  if (model.languages[0]) source.lang = model.languages[0];
  if (model.languages[1]) target.lang = model.languages[1];
  element("model-name").textContent = `${model.name}, version ${model.version}`;
  element("model").hidden = false;
  const examples = task.title ? task.examples : EXAMPLES[model.languages[0]];
  const buttons = (examples || []).map((text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = text;
    button.addEventListener("click", () => replaceText(text));
    return button;
  });
  element("examples").replaceChildren(...buttons);
  const content = JSON.stringify({ instances: [{ [model.input]: model.tagged("…") }] });
  element("curl").textContent = `curl ${new URL(model.path, location.href)}:predict -d '${content}'`;
}

/** Offers the directions of a model that has several. */
function offerDirections() {
  const choice = element("direction");
  choice.hidden = !model.directions.length;
  const before = choice.value;
  const options = model.directions.map((pair) => new Option(pair.map(languageName).join(" to "), pair.join("-")));
  choice.replaceChildren(...options);
  if (!options.some(({ value }) => value === before)) return;
  choice.value = before; // of the previous version
  model.languages = model.directions[choice.selectedIndex];
}

function chooseDirection() {
  model.languages = model.directions[element("direction").selectedIndex];
  introduce();
  details.use(model);
  translations.use(model);
  typed();
}

function use(loaded) {
  model = loaded;
  showTrouble(null);
  source.disabled = !model.translates;
  if (source.disabled) {
    showTrouble({ message: "The served model has no signature that translates text." });
    return;
  }
  offerDirections();
  introduce();
  details.use(model);
  translations.use(model);
  typed();
}

/** Requests the model until there is one; a server that has just started may not have loaded it yet. */
async function start(seconds = 1) {
  clearTimeout(start.timer);
  try {
    use(await Model.load());
  } catch (error) {
    showTrouble({ message: error.message, seconds });
    start.timer = setTimeout(() => start(Math.min(2 * seconds, 30)), seconds * 1000);
  }
}

/** Switches to a newer version if the server has one. */
async function refresh() {
  if (document.hidden || !model) return;
  const loaded = await Model.load().catch(() => model);
  if (loaded.version !== model.version || loaded.name !== model.name) use(loaded);
}

source.addEventListener("input", typed);
document.addEventListener("selectionchange", () => document.activeElement === source && followCaret());
document.addEventListener("visibilitychange", refresh);
element("clear").addEventListener("click", () => replaceText(""));
element("copy").addEventListener("click", copy);
element("direction").addEventListener("change", chooseDirection);
element("again").addEventListener("click", () => (model ? translations.again() : start()));
start();
