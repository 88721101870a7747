"""Protects spans of texts on a server, around the signatures of an export; imports neither TensorFlow nor Keras."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.export_contract import SERVING_DEFAULT
from t2t_keras.inference.line_preparation import for_server, preparation
from t2t_keras.inference.marked_text import unchanged
from t2t_keras.inference.served_markup import aligned_output
from t2t_keras.runs.run import Run
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.preparation import Preparation, Prepared
from t2t_keras.text.protection.removal import Sentence, diagonal
from t2t_keras.text.protection.spans import KINDS
from t2t_keras.text.repair import repair
from t2t_keras.text.sentences import blank_between, find_sentences
from t2t_keras.text.tokenizer import Tokenizer

Arrays = dict[str, np.ndarray]
# The name of a signature and its inputs.
SignatureCall = tuple[str, Arrays]

_MOST_ROWS = 8  # of a call of a signature
_LOWEST = float(np.finfo(np.float32).min)  # the score of a missing translation, because JSON has no infinity


class ServedProtection:
    """Finds protected spans for one version of an export.

    Args:
        version: the directory of the version. A SavedModel of other origin has no protected spans.
        changes: decoding settings by name, which replace those of the export.

    Raises:
        InputError: an expression is not valid, or the task does not support the settings.
    """

    def __init__(self, version: pathlib.Path, changes: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._config: Config | None = None
        run = Run(version)
        if not (run.exists and run.vocab_path.exists()):
            return
        self._config = for_server(run.config, changes)
        self._tokenizer = Tokenizer.load(run.vocab_path)
        self._prepare = functools.lru_cache(maxsize=64)(self._make)
        self._prepare((), self._config.decode.case)

    def _make(self, protect: tuple[str, ...], case: Literal["exact", "fallback"]) -> Preparation:
        assert self._config
        decode = self._config.decode
        decode = dataclasses.replace(decode, protect=(*decode.protect, *protect), case=case)
        return preparation(self._tokenizer, decode, self._config.data)

    def __call__(
        self,
        texts: Sequence[str],
        fields: Mapping[str, Any],
        aligning: str,
        most_rows: int,
        *,
        aligns_all: bool = False,
    ) -> "ProtectedTexts | None":
        """Prepares the texts of a request; see `t2t_keras.serving.http.protected.Protection`."""
        if self._config is None:
            if fields:
                raise InputError(f"{next(iter(fields))!r} needs an export with a vocabulary")
            return None
        prepare = self._prepare(_kinds(fields.get("protect", [])), _case(fields.get("case", self._config.decode.case)))
        prepared = [prepare(text) for text in texts]
        if not any(prepared):
            return None
        call = aligning, min(most_rows, _MOST_ROWS)
        return ProtectedTexts(prepare, self._config, texts, prepared, call, aligns_all)


def _kinds(values: Any) -> tuple[str, ...]:
    # A request must not bring regular expressions, which can take exponential time.
    if not isinstance(values, list) or not all(isinstance(value, str) and value in KINDS for value in values):
        raise InputError(f"'protect' must be a list of {', '.join(KINDS)}; got {str(values)[:40]}")
    return tuple(sorted(set(values)))


def _case(value: Any) -> Literal["exact", "fallback"]:
    if value not in ("exact", "fallback"):
        raise InputError(f"'case' must be exact or fallback; got {str(value)[:40]!r}")
    return value


class ProtectedTexts:
    """The texts of one request on their way through two rounds of calls; made by `ServedProtection`.

    Args:
        prepare: prepares texts.
        config: the settings of the export.
        texts: the texts.
        prepared: the prepared texts; None for a text that the model reads as it is.
        call: the name of the signature that aligns words, or "", and the maximum number of rows of a call.
        aligns_all: whether all texts are aligned, for `aligned`.

    Attributes:
        first: the calls of the first round.
    """

    def __init__(
        self,
        prepare: Preparation,
        config: Config,
        texts: Sequence[str],
        prepared: Sequence[Prepared | None],
        call: tuple[str, int],
        aligns_all: bool = False,
    ) -> None:
        self._prepare, self._config, self._texts = prepare, config, texts
        self._aligning, self._most_rows = call
        self._aligns_all = aligns_all
        self._prepared = list(prepared)
        self._translated: dict[int, tuple[list[Sentence], float]] = {}
        self._jobs = {row: self._sentences(row) for row in range(len(texts))}
        self.first = self._calls()

    def again(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[SignatureCall]:
        """Returns the calls for texts whose translations do not repeat their spans exactly once."""
        self._read(outputs)
        self._jobs = {}
        for row, prepared in enumerate(self._prepared):
            if prepared is None or prepared.is_met(self._plain(row)):
                continue
            retry = self._prepare(self._texts[row], keeps_spans=False)
            if retry:
                self._prepared[row] = retry
                self._jobs[row] = self._sentences(row)
        return self._calls()

    def answer(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
        """Returns the translations, given the outputs of the calls of `again`.

        Returns:
            By name: translation, string [texts]; score, float32 [texts]; and, if there are any, unknown_characters,
            string [texts, spans], the spans with characters that the training text never had, padded with "".
        """
        self._read(outputs)
        translations, unknown = [], []
        for row, prepared in enumerate(self._prepared):
            sentences, score = self._translated[row]
            is_missing = prepared is None or score <= _LOWEST
            translations.append(self._plain(row) if is_missing or not prepared else prepared.finished(sentences).text)
            unknown.append([] if prepared is None else [span.encode() for span in prepared.unknown])
        scores = [max(score, _LOWEST) for _, score in (self._translated[row] for row in range(len(translations)))]
        results = {
            "translation": np.array([text.encode() for text in translations], object),
            "score": np.array(scores, np.float32),
        }
        if width := max(map(len, unknown)):
            names = np.array([[*row, *[b""] * (width - len(row))] for row in unknown], object)
            results["unknown_characters"] = names.reshape(len(unknown), width)
        return results

    def aligned(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[AlignedText]:
        """Returns the translations with their links to the texts; a missing translation is the text itself.

        `outputs` are those of the calls of `again`.
        """
        self._read(outputs)
        results = []
        for row, (text, prepared) in enumerate(zip(self._texts, self._prepared, strict=True)):
            sentences, score = self._translated[row]
            read = prepared or Prepared(text, text, (), (), (), ())
            results.append(unchanged(text) if score <= _LOWEST else read.aligned(sentences))
        return results

    def _plain(self, row: int) -> str:
        """Returns the translation of a text as the model read it."""
        return "".join(each.before + each.translation.text for each in self._translated[row][0])

    def _sentences(self, row: int) -> list[tuple[str, str]]:
        """Returns the sentences of a text, with the white space between them; one text if it is read as it is."""
        prepared = self._prepared[row]
        if prepared is None:
            return [("", self._texts[row])]
        if self._config.decode.split == "lines":
            return [("", prepared.text)] if prepared.text else []
        blank = blank_between(self._config.data.target_language)
        found = find_sentences(prepared.text, self._config.data.source_language)
        return [(each.before or blank * (number > 0), each.text) for number, each in enumerate(found)]

    def _rows(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yields the signature and the rows of each call: pairs of a text and one of its sentences."""
        groups: dict[str, list[tuple[int, int]]] = {}
        for row, sentences in self._jobs.items():
            prepared = self._prepared[row]
            rows = [(row, number) for number in range(len(sentences))]
            if not self._aligns_all:
                groups.setdefault(SERVING_DEFAULT, []).extend(rows)
            if self._aligning and (self._aligns_all or (prepared and prepared.removed)):
                groups.setdefault(self._aligning, []).extend(rows)
        for name, rows in groups.items():
            # The texts of a call are padded to the longest one.
            rows.sort(key=lambda pair: len(self._jobs[pair[0]][pair[1]][1]))
            for start in range(0, len(rows), self._most_rows):
                yield name, rows[start : start + self._most_rows]

    def _calls(self) -> list[SignatureCall]:
        calls = []
        for name, rows in self._rows():
            texts = [self._text(*pair).encode("utf-8", "replace") for pair in rows]
            calls.append((name, {"text": np.array(texts, object)}))
        return calls

    def _text(self, row: int, number: int) -> str:
        """Returns a sentence as it is sent: with the symbol in front of its text, such as a language tag."""
        sentence = self._jobs[row][number][1]
        return f"{self._prepare.head(self._jobs[row][0][1])}{sentence}" if number else sentence

    def _read(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Reads the outputs of the calls from `_calls`."""
        merged: dict[tuple[int, int], Arrays] = {}
        for (_, rows), arrays in zip(self._rows(), outputs, strict=True):
            for place, pair in enumerate(rows):
                values = {key: array[place : place + 1] for key, array in arrays.items()}
                # The calls of `SERVING_DEFAULT` come first, and theirs is the translation to return.
                merged[pair] = {**values, **merged.get(pair, {})}
        results = {pair: self._result(self._jobs[pair[0]][pair[1]][1], values) for pair, values in merged.items()}
        for row, sentences in self._jobs.items():
            translated = [
                Sentence(before, source, results[row, number][0]) for number, (before, source) in enumerate(sentences)
            ]
            self._translated[row] = translated, sum(results[row, number][1] for number in range(len(sentences)))

    def _result(self, source: str, values: Mapping[str, np.ndarray]) -> tuple[AlignedText, float]:
        """Returns the aligned translation of a sentence and its score, which is 0 for documents."""
        score = float(values["score"][0]) if "score" in values else 0.0
        if score <= _LOWEST:
            return AlignedText("", ()), score
        if "attention" in values:
            return aligned_output(repair(source), values), score
        return diagonal(repair(source), values["translation"][0].decode()), score
