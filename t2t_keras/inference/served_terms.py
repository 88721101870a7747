"""Texts with a glossary that a server translates, by an export's signatures `tokens` and `constrained`."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_keras.inference.request import EncodedRequest, Ids, RequestEncoder, asked_arrays, numbered, request_batches
from t2t_keras.inference.required_terms import RequiredTerms, check_combination
from t2t_keras.inference.translation import Translation, translations_of_line
from t2t_keras.runs.run import Run
from t2t_keras.search.batches import padded
from t2t_keras.search.searches import OPTIONS
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.registry import task
from t2t_keras.text.repair import repair
from t2t_keras.text.terms import Glossary
from t2t_keras.text.tokenizer import Tokenizer

Arrays = dict[str, np.ndarray]

# Of a call, with padding. A signature of token ids is run as a whole, and others wait for it.
_MOST_TOKENS = 256
_MOST_ROWS = 8

# The score of a missing translation, because JSON has no infinity.
_LOWEST = np.finfo(np.float32).min


class ServedTerms:
    """Reads texts and glossaries for a version of an export.

    Args:
        version: the directory of the version.

    Raises:
        InputError: it is no export of this project, or a glossary does not go with its settings.
    """

    def __init__(self, version: pathlib.Path) -> None:
        run = Run(version)
        config, self.tokenizer = run.config, Tokenizer.load(run.vocab_path)
        self.task = task(config.data.task)
        writes_labels = self.task.form(self.tokenizer) is not None
        check_combination(config.decode, self.tokenizer, frozenset(OPTIONS), writes_labels)
        self.encoder = RequestEncoder(self.tokenizer, config.decode, config.data, run.excluded)

    def __call__(self, texts: Sequence[str], glossary: Sequence[tuple[str, str]], most_rows: int) -> "TextsWithTerms":
        """Texts to translate with a glossary of pairs (term, "form|form|...") of their own.

        Args:
            texts: the texts.
            glossary: the pairs.
            most_rows: most rows of a call.

        Raises:
            InputError: an entry of the glossary cannot be used, or a text is no source of the task; names it.
        """
        rows = [(f"entry {number}", *pair) for number, pair in enumerate(glossary, start=1)]
        terms = RequiredTerms(Glossary.of(rows, "glossary"), self.encoder, self.tokenizer.source.decode)
        return TextsWithTerms(self, terms, texts, min(most_rows, _MOST_ROWS))


class TextsWithTerms:
    """Texts, and what became of them so far; made by `ServedTerms`.

    Attributes:
        first: inputs of calls of `tokens`, by name, for the parts of all texts.
    """

    def __init__(self, served: ServedTerms, terms: RequiredTerms, texts: Sequence[str], most_rows: int) -> None:
        self._served, self._terms, self._most_rows = served, terms, most_rows
        self._lines = list(numbered(texts, served.encoder))
        self._parts = [part for line in self._lines for part in line.of_parts()]
        self._plain: list[list[Translation]] = []
        self._asked: dict[int, EncodedRequest] = {}
        self.first = self._calls(self._parts)

    def again(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays]:
        """Inputs of calls of `constrained`, given the outputs of `first`; none if no term is missing."""
        self._plain = self._found(self._parts, outputs)
        self._asked = self._terms.asked_again(self._parts, self._plain)
        return self._calls(list(self._asked.values()))

    def answer(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
        """The translations, given the outputs of `again`.

        Returns:
            translation, string [texts]; score, float32 [texts]; and missing_terms, string [texts, most], the terms of
            which a translation has no form, then "".
        """
        forced = dict(zip(self._asked, self._found(list(self._asked.values()), outputs), strict=True))
        parts = iter(self._terms.chosen(self._parts, self._plain, forced))
        found = []
        for line in self._lines:
            own = [next(parts) for _ in line.parts]
            found += translations_of_line(self._served.task, line, own, 1, by_score=True)
        missing = [[use.source.encode() for use in each.terms if not use.form] for each in found]
        width = max(map(len, missing))
        names = np.array([[*row, *[b""] * (width - len(row))] for row in missing], object)
        scores = [max(translation.score, _LOWEST) for translation in found]
        return {
            "translation": np.array([translation.text.encode() for translation in found], object),
            "score": np.array(scores, np.float32),
            "missing_terms": names.reshape(len(found), width),
        }

    def _batches(self, parts: Sequence[EncodedRequest]) -> list[list[int]]:
        """The numbers of parts that are asked for together."""
        most = self._most_rows
        batches = request_batches(parts, _MOST_TOKENS)
        return [batch[start : start + most] for batch in batches for start in range(0, len(batch), most)]

    def _calls(self, parts: Sequence[EncodedRequest]) -> list[Arrays]:
        calls = []
        for batch in self._batches(parts):
            sources = [_source(parts[row]) for row in batch]
            lengths = np.array([len(source) for source in sources], np.int32)
            asked = asked_arrays([parts[row] for row in batch])
            calls.append({"source_ids": padded(sources), "source_length": lengths, **asked})
        return calls

    def _found(
        self, parts: Sequence[EncodedRequest], outputs: Sequence[Mapping[str, np.ndarray]]
    ) -> list[list[Translation]]:
        """The best translation of each part, given the outputs of `_calls`."""
        found: list[list[Translation]] = [[]] * len(parts)
        for batch, arrays in zip(self._batches(parts), outputs, strict=True):
            rows = (arrays[name] for name in ("translation_ids", "translation_length", "score"))
            for row, ids, length, score in zip(batch, *rows, strict=True):
                found[row] = [self._translation(_source(parts[row]), tuple(ids[:length].tolist()), float(score))]
        return found

    def _translation(self, source: Ids, ids: Ids, score: float) -> Translation:
        if not ids:
            return Translation("", -np.inf, -np.inf, 0, 1, (source,), ((),))
        text = repair(self._served.tokenizer.decode(ids))
        return Translation(text, score, np.nan, len(ids), 1, (source,), (ids,))


def _source(part: EncodedRequest) -> Ids:
    """Its token ids with their end symbol."""
    return (*part.parts[0], EOS_ID)
