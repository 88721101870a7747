// The list of hypotheses of one sentence.

/**
 * Shows hypotheses, best first.
 *
 * @param {HTMLElement} list - the list to fill.
 * @param {{translation: string, score: number}[]} hypotheses
 * @param {{isProbability?: boolean, none?: string}} task - `isProbability`: scores are log-probabilities, and are
 *   shown in percent; empty outputs, which blank texts have, are left out. `none` replaces an empty output.
 */
export function showAlternatives(list, hypotheses, { isProbability, none }) {
  const answers = hypotheses
    .filter(({ translation }) => translation || !isProbability)
    .map(({ translation, score }) => ({ translation: translation || none || "", score }));
  list.replaceChildren(...answers.map((entry) => item(entry, answers[0], isProbability)));
}

/** Describes the list. */
export function alternativesHint(isProbability) {
  if (isProbability) return "All answers that the search found, with their probabilities.";
  return (
    "The hypotheses of the search, best first. The score is the log-probability, corrected for length: closer to 0 is " +
    "better. Words that are not in the best one are marked."
  );
}

function item({ translation, score }, best, isProbability) {
  const row = document.createElement("li");
  const text = document.createElement("span");
  text.dir = "auto";
  text.append(...marked(translation, best.translation));
  const number = document.createElement("span");
  number.className = "score";
  const percent = `${(100 * Math.exp(score)).toFixed(1)} %`;
  number.textContent = isProbability ? percent : score.toFixed(2).replace("-", "−");
  number.title = isProbability ? "probability" : "score";
  const bar = document.createElement("span");
  bar.className = "bar";
  bar.style.setProperty("--share", Math.exp(Math.min(score - best.score, 0)).toFixed(4));
  row.append(text, number, bar);
  return row;
}

/** The words of a text; words outside a longest common subsequence with `other` are marked. */
function marked(text, other) {
  const words = text.split(" ");
  const common = inCommon(words, other.split(" "));
  return words.flatMap((word, index) => {
    const space = index ? [" "] : [];
    if (common.has(index)) return [...space, word];
    const mark = document.createElement("mark");
    mark.textContent = word;
    return [...space, mark];
  });
}

/** The places in `words` of a longest common subsequence with `others`. */
function inCommon(words, others) {
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i--) {
    for (let j = others.length - 1; j >= 0; j--) {
      const same = words[i] === others[j];
      lengths[i][j] = same ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const places = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length; ) {
    if (words[i] === others[j]) {
      places.add(i);
      i++;
      j++;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return places;
}
