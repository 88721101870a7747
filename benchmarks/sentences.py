"""Measures how well this project and, if installed, sentencex split text into sentences.

    python -m benchmarks.sentences
    python -m benchmarks.sentences --lines=train.en --language=en

The first command joins random groups of three sentences whose ends are hard to detect (`hard_sentences.tsv`, written
before the rules). The second command joins lines of a file, each of which counts as one sentence. Both print the F1 of
the positions where sentences begin, and the time per paragraph. To compare with sentencex, run pip install sentencex.
"""

import argparse
import collections
import functools
import itertools
import pathlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.turns import number
from t2t_keras.data.sources.corpora_files import read_lines
from t2t_keras.text.sentences import blank_between, find_sentences

# Lines of language, kind and sentence; "|" marks boundaries within a line.
PATH = pathlib.Path(__file__).with_name("hard_sentences.tsv")
_TOGETHER = 3
_BOUNDARIES = 1000


class Paragraph(NamedTuple):
    """A paragraph of sentences.

    Attributes:
        language: language code.
        text: the text.
        begins: positions where sentences begin, except the first one.
    """

    language: str
    text: str
    begins: frozenset[int]


@functools.cache
def paragraphs(seed: int = 1) -> list[Paragraph]:
    """Returns random paragraphs with at least a thousand boundaries."""
    by_language: dict[str, list[str]] = collections.defaultdict(list)
    for line in PATH.read_text(encoding="utf-8").splitlines():
        language, _, sentence = line.split("\t")
        by_language[language].append(sentence)
    rng = random.Random(seed)
    result: list[Paragraph] = []
    while sum(len(paragraph.begins) for paragraph in result) < _BOUNDARIES:
        for language, sentences in by_language.items():
            order = rng.sample(sentences, len(sentences))
            rows = (order[start : start + _TOGETHER] for start in range(0, len(order), _TOGETHER))
            result += [_paragraph(language, f"|{blank_between(language)}".join(row)) for row in rows if len(row) > 1]
    return result


def _paragraph(language: str, marked: str) -> Paragraph:
    text, begins = "", []
    for piece in marked.split("|"):
        begins.append(len(text) + len(piece) - len(piece.lstrip()))
        text += piece
    return Paragraph(language, text, frozenset(begins[1:]))


def paragraphs_of_lines(lines: Iterable[str], language: str) -> Iterator[Paragraph]:
    """Joins three lines at a time with spaces."""
    remaining = iter(line.strip() for line in lines if line.strip())
    while row := list(itertools.islice(remaining, _TOGETHER)):
        yield _paragraph(language, "| ".join(line.replace("|", "/") for line in row))


def begins_of(pieces: Sequence[str]) -> frozenset[int]:
    """Returns the positions where pieces of a text begin, without the first one and without white space."""
    ends = itertools.accumulate(map(len, pieces), initial=0)
    return frozenset(start + len(piece) - len(piece.lstrip()) for start, piece in zip(ends, pieces, strict=False)) - {0}


class Result(NamedTuple):
    """The result of splitting paragraphs.

    Attributes:
        right: number of correct beginnings of sentences.
        wrong: number of wrong ones.
        missed: number of missing ones.
        seconds: duration.
    """

    right: int
    wrong: int
    missed: int
    seconds: float

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall in percent."""
        return 200 * self.right / (2 * self.right + self.wrong + self.missed)


def by_rules(language: str, text: str) -> list[str]:
    """Splits a text by this project's rules; sentences keep their white space."""
    return ["".join(sentence) for sentence in find_sentences(text, language)]


def measured(split: Callable[[str, str], Sequence[str]], examples: Sequence[Paragraph]) -> Result:
    """Measures a function that splits a text, given its language."""
    start = time.perf_counter()
    pieces = [split(paragraph.language, paragraph.text) for paragraph in examples]
    seconds = time.perf_counter() - start
    begins_by_text = [begins_of(each) for each in pieces]
    right, wrong, missed = (
        sum(len(chosen(begins, paragraph.begins)) for begins, paragraph in zip(begins_by_text, examples, strict=True))
        for chosen in (frozenset.intersection, frozenset.difference, lambda begins, wanted: wanted - begins)
    )
    return Result(right, wrong, missed, seconds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", help="a file with one sentence per line, also .gz")
    parser.add_argument("--language", default="en", help="language of the file")
    parser.add_argument("--count", type=number(), default=6000, help="number of lines to read")
    arguments = parser.parse_args()
    if arguments.lines:
        lines = itertools.islice(read_lines(arguments.lines), arguments.count)
        tables = {arguments.language: list(paragraphs_of_lines(lines, arguments.language))}
    else:
        tables = {"all": paragraphs()}
        for language in dict.fromkeys(paragraph.language for paragraph in paragraphs()):
            tables[language] = [paragraph for paragraph in paragraphs() if paragraph.language == language]
    splitters: dict[str, Callable[[str, str], Sequence[str]]] = {"rules": by_rules}
    try:
        import sentencex
    except ImportError:
        print("sentencex is not installed")
    else:
        splitters["sentencex"] = lambda language, text: list(sentencex.segment(language, text))
    for split in splitters.values():
        for examples in tables.values():
            measured(split, examples[:5])  # reads tables and compiles rules
    print(f"{'':10} {'':10} {'begins':>7} {'F1':>6} {'wrong':>6} {'missed':>6} {'us/paragraph':>13}")
    for language, examples in tables.items():
        for name, split in splitters.items():
            result = measured(split, examples)
            count, each = result.right + result.missed, 1e6 * result.seconds / len(examples)
            row = f"{result.f1:6.1f} {result.wrong:6,} {result.missed:6,} {each:13.1f}"
            print(f"{language:10} {name:10} {count:7,} {row}")


if __name__ == "__main__":
    main()
