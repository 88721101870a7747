"""Artificial examples of every task, as lines of its files."""

import json
import random


def trees(rng: random.Random, count: int) -> list[str]:
    """Returns sentences of a small grammar; some trees take two lines."""
    nouns, verbs = ["dog", "cat", "bird", "tree", "-LRB-"], ["sees", "likes", "bites"]

    def noun_phrase(depth: int = 0) -> str:
        plain = f"(NP (DT the) (NN {rng.choice(nouns)}))"
        return f"(NP {plain} (PP (IN near) {noun_phrase(depth + 1)}))" if depth < 2 and rng.random() < 0.4 else plain

    return [
        f"( (S (NP-SBJ {noun_phrase()})\n  (VP (VBZ {rng.choice(verbs)}) {noun_phrase()} (NP (-NONE- *))) (. .)) )"
        for _ in range(count)
    ]


def reviews(rng: random.Random, count: int) -> list[str]:
    """Returns texts in which one word determines the label."""
    words = {"good": "positive", "bad": "negative", "so-so": "none"}
    lines = []
    for _ in range(count):
        chosen = rng.choice(list(words))
        text = [*rng.choices(["a", "film", "with", "people", "in", "it", "100"], k=rng.randint(1, 7)), chosen]
        rng.shuffle(text)
        lines.append(f"{' '.join(text)}\t{words[chosen]}")
    return lines


def names(rng: random.Random, count: int) -> list[str]:
    """Returns sentences whose capitalised words are names of one or two words, separated by tagged words."""
    sentences = []
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(1, 5)):
            kind = rng.choice(["O", "O", "PER", "LOC"])
            word = {"O": ["sees", "near", "and"], "PER": ["Ana", "Bo"], "LOC": ["Rom", "Ulm"]}[kind]
            lines.append(f"{rng.choice(word)} NN {'O' if kind == 'O' else f'B-{kind}'}")
            if kind == "PER" and rng.random() < 0.5:
                lines.append("Ito NN I-PER")
        sentences.append("\n".join(lines) + "\n")
    return ["-DOCSTART- O", *sentences]


def articles(rng: random.Random, count: int) -> list[str]:
    """Returns lines of words, a tab, and a selection of these words."""
    lines = []
    for _ in range(count):
        words = [rng.choice(["ana", "bo", "rom", "sees", "near"]) for _ in range(rng.randint(3, 9))]
        selected = [word.title() for word in words if rng.random() < 0.3] + ["too"] * 2  # ROUGE-2 needs two words.
        lines.append(f"{' '.join(words)} {' and '.join(selected)}\t{' '.join(selected)}")
    return lines


def texts(rng: random.Random, count: int) -> list[str]:
    """Returns text without labels."""
    return [f"{line.partition(chr(9))[0]} {number}" for number, line in enumerate(articles(rng, count))]


def questions(rng: random.Random, count: int) -> list[str]:
    """Returns SQuAD's JSON; some paragraphs exceed `MAX_LENGTHS`, and some questions have no answer."""
    paragraphs = []
    for number in range(count):
        sentences = [f"{name} has {rng.randint(1, 9)} cats." for name in rng.sample(["ana", "bo", "rom", "ulm"], 4)]
        keyed_questions = rng.choice(["ana", "bo", "eve"])
        answers = [
            {"text": line.split()[2], "answer_start": 0} for line in sentences if line.startswith(keyed_questions)
        ]
        asking = {"id": str(number), "question": f"cats of {keyed_questions}?", "answers": answers}
        paragraphs.append({"context": " ".join(sentences[: rng.randint(2, 4)] + sentences), "qas": [asking]})
    return json.dumps({"data": [{"paragraphs": paragraphs}]}, indent=1).splitlines()


EXAMPLES = {
    "question_answering": questions,
    "parsing": trees,
    "classification": reviews,
    "tagging": names,
    "summarisation": articles,
    "denoising": texts,
}
