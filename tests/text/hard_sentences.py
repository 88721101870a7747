"""Paragraphs made of sentences whose ends are hard to find, with the places where sentences begin."""

import collections
import functools
import pathlib
import random
from typing import NamedTuple

# Lines of language, kind and sentence; "|" stands where one sentence ends and another begins within a line.
PATH = pathlib.Path(__file__).parents[2] / "benchmarks" / "hard_sentences.tsv"
_TOGETHER = 3
_BOUNDARIES = 1000


class Paragraph(NamedTuple):
    """Sentences of a language in a row.

    Attributes:
        language: the language's code.
        text: the sentences.
        begins: where sentences begin, but for the first one.
    """

    language: str
    text: str
    begins: frozenset[int]


@functools.cache
def paragraphs(seed: int = 1) -> list[Paragraph]:
    """Random rows of sentences, with a thousand boundaries or some more."""
    by_language: dict[str, list[str]] = collections.defaultdict(list)
    for line in PATH.read_text(encoding="utf-8").splitlines():
        language, _, sentence = line.split("\t")
        by_language[language].append(sentence)
    drawing = random.Random(seed)
    made: list[Paragraph] = []
    while sum(len(paragraph.begins) for paragraph in made) < _BOUNDARIES:
        for language, sentences in by_language.items():
            order = drawing.sample(sentences, len(sentences))
            rows = (order[start : start + _TOGETHER] for start in range(0, len(order), _TOGETHER))
            blank = "" if language in ("ja", "zh") else " "
            made += [_paragraph(language, f"|{blank}".join(row)) for row in rows if len(row) > 1]
    return made


def _paragraph(language: str, marked: str) -> Paragraph:
    text, begins = "", []
    for piece in marked.split("|"):
        begins.append(len(text) + len(piece) - len(piece.lstrip()))
        text += piece
    return Paragraph(language, text, frozenset(begins[1:]))
