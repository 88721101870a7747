"""Protects spans of texts on a server, around the signatures of an export; imports neither TensorFlow nor Keras."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.export_contract import ALIGN, LOWEST, MAX_LINE_TOKENS, NBEST, SERVING_DEFAULT, SIGNATURES
from t2t_keras.inference.line_preparation import preparation, with_decode_changes
from t2t_keras.inference.served_markup import aligned_output
from t2t_keras.inference.translation import combinations
from t2t_keras.runs.run import Run
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.preparation import Preparation, Prepared
from t2t_keras.text.protection.removal import Sentence, diagonal
from t2t_keras.text.protection.spans import KINDS
from t2t_keras.text.repair import lowercased, repair
from t2t_keras.text.sentences import blank_between, find_sentences
from t2t_keras.text.splitting import split_text
from t2t_keras.text.tokenizer import Tokenizer

Arrays = dict[str, np.ndarray]
# The name of a signature and its inputs.
SignatureCall = tuple[str, Arrays]


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
        self._config = with_decode_changes(run.config_without_model, changes)
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
        inputs: Mapping[str, np.ndarray],
        fields: Mapping[str, Any],
        signature: str,
        aligns: bool,
        groups: Callable[[Sequence[int]], list[list[int]]],
        tag: str = "",
    ) -> "ProtectedTexts | None":
        """Prepares the texts of a request; see `t2t_keras.serving.http.protected.Protection`."""
        if self._config is None:
            if fields:
                raise InputError(f"{next(iter(fields))!r} requires an export with a vocabulary")
            return None
        prepare = self._prepare(_kinds(fields.get("protect", [])), _case(fields.get("case", self._config.decode.case)))
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        prepared = [prepare(text) for text in texts]
        if not any(prepared):
            return None
        others = {name: array for name, array in inputs.items() if name != "text"}
        plan = _Plan(signature, self._fits_align if aligns else lambda sentence: False, groups, others, tag)
        return ProtectedTexts(prepare, self._config, texts, prepared, plan)

    def _fits_align(self, sentence: str) -> bool:
        """Returns whether the parts of a sentence have few enough tokens for the signature `ALIGN`."""
        assert self._config
        data = self._config.data
        tokenizer = self._tokenizer.source

        def num_tokens(text: str) -> int:
            return len(tokenizer.encode(text)) + 2  # a tag and the end symbol

        text = repair(lowercased(sentence) if data.lowercases_sources else sentence)
        parts = split_text(text, lambda part: num_tokens(part) <= data.max_length)
        return sum(map(num_tokens, parts)) <= MAX_LINE_TOKENS


def _kinds(values: Any) -> tuple[str, ...]:
    # A request must not bring regular expressions, which can take exponential time.
    if not isinstance(values, list) or not all(isinstance(value, str) and value in KINDS for value in values):
        raise InputError(f"'protect' must be a list of {', '.join(KINDS)}; got {str(values)[:40]}")
    return tuple(sorted(set(values)))


def _case(value: Any) -> Literal["exact", "fallback"]:
    if value not in ("exact", "fallback"):
        raise InputError(f"'case' must be exact or fallback; got {str(value)[:40]!r}")
    return value


class _Plan(NamedTuple):
    """How the texts of a request are translated.

    Attributes:
        signature: name of the signature that translates.
        may_align: returns whether the signature `ALIGN` exists, returns scores, and takes a sentence of this length.
        groups: groups texts of given sizes in bytes into calls, and returns their indices.
        inputs: the other inputs of the signature, with one row per text.
        tag: symbol to put in front of each sentence, or "".
    """

    signature: str
    may_align: Callable[[str], bool]
    groups: Callable[[Sequence[int]], list[list[int]]]
    inputs: Arrays
    tag: str

    def signature_for(self, prepared: Prepared | None, sentence: str) -> str:
        """Returns the signature that translates a sentence of a text."""
        needs_links = self.signature == SERVING_DEFAULT and prepared is not None and prepared.removed
        return ALIGN if needs_links and self.may_align(sentence) else self.signature


class _Hypothesis(NamedTuple):
    """A translation of a sentence and its score, which is 0 if it is unknown."""

    text: AlignedText
    score: float


class ProtectedTexts:
    """The texts of one request on their way through two rounds of calls; made by `ServedProtection`.

    Args:
        prepare: prepares texts.
        config: the settings of the export.
        texts: the texts.
        prepared: the prepared texts; None for a text that the model reads as it is.
        plan: how they are translated.

    Attributes:
        first: the calls of the first round.
    """

    def __init__(
        self,
        prepare: Preparation,
        config: Config,
        texts: Sequence[str],
        prepared: Sequence[Prepared | None],
        plan: _Plan,
    ) -> None:
        self._prepare, self._config, self._texts, self._plan = prepare, config, texts, plan
        self._prepared = list(prepared)
        # By index of the text: its hypotheses, best first, as their sentences and scores.
        self._hypotheses: dict[int, list[tuple[list[Sentence], float]]] = {}
        # By index of the text: the sentences that are translated in the current round.
        self._jobs = {row: self._sentences(row) for row in range(len(texts))}
        self.first = self._calls()

    def again(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[SignatureCall]:
        """Returns the calls for texts whose best translations do not repeat their spans exactly once.

        `outputs` are those of the calls in `first`.
        """
        self._read(outputs)
        self._jobs = {}
        for row, prepared in enumerate(self._prepared):
            if prepared is None:
                continue
            hypotheses = self._hypotheses[row]
            if prepared.is_met(_plain(hypotheses[0][0])):
                self._hypotheses[row] = [each for each in hypotheses if prepared.is_met(_plain(each[0]))]
            elif retry := self._prepare(self._texts[row], keeps_spans=False):
                self._prepared[row] = retry
                self._jobs[row] = self._sentences(row)
        return self._calls()

    def answer(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
        """Returns the translations, given the outputs of the calls of `again`.

        Returns:
            The outputs of the signature by name; and, if there are any, unknown_characters, string [texts, spans], the
            spans with characters that the training text never had, padded with "".
        """
        self._read(outputs)
        num_best = self._num_best
        texts, scores, unknown = [], [], []
        for row, prepared in enumerate(self._prepared):
            best, *others = self._hypotheses[row]
            hypotheses = [best, *(each for each in others if each[1] > LOWEST)][:num_best]
            missing = num_best - len(hypotheses)
            texts.append([*(self._finished(prepared, *each) for each in hypotheses), *[b""] * missing])
            scores.append([*(max(score, LOWEST) for _, score in hypotheses), *[LOWEST] * missing])
            unknown.append(prepared.unknown if prepared else ())
        text_name, score_name = SIGNATURES[self._plan.signature].outputs
        shape = [len(texts), num_best] if self._plan.signature == NBEST else [len(texts)]
        results = {
            text_name: np.array(texts, object).reshape(shape),
            score_name: np.array(scores, np.float32).reshape(shape),
        }
        if any(unknown):
            results["unknown_characters"] = padded_texts(unknown)
        return results

    def aligned(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[AlignedText]:
        """Returns the translations with their links to the texts; a missing translation is the text itself.

        `outputs` are those of the calls of `again`.
        """
        self._read(outputs)
        results = []
        for row, (text, prepared) in enumerate(zip(self._texts, self._prepared, strict=True)):
            sentences, score = self._hypotheses[row][0]
            read = prepared or Prepared(text, text, (), (), (), ())
            results.append(AlignedText.unchanged(text) if score <= LOWEST else read.aligned(sentences))
        return results

    @property
    def _num_best(self) -> int:
        return self._config.decode.beam_size if self._plan.signature == NBEST else 1

    def _finished(self, prepared: Prepared | None, sentences: Sequence[Sentence], score: float) -> bytes:
        """Returns the translation of a text, given that of the text that the model read."""
        text = _plain(sentences) if prepared is None or score <= LOWEST else prepared.finished(sentences).text
        return text.encode()

    def _sentences(self, row: int) -> list[tuple[str, str]]:
        """Returns the sentences of a text with the white space before them; an unchanged text is one sentence."""
        prepared = self._prepared[row]
        if prepared is None:
            return [("", self._texts[row])]
        if self._config.decode.split == "lines":
            return [("", prepared.text)] if prepared.text else []
        blank = blank_between(self._config.data.target_language)
        sentences = find_sentences(prepared.text, self._config.data.source_language)
        return [(each.before or blank * (number > 0), each.text) for number, each in enumerate(sentences)]

    def _group_rows(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yields the signature and the rows of each call: pairs of a text and one of its sentences."""
        rows_by_name: dict[str, list[tuple[int, int]]] = {}
        for row, sentences in self._jobs.items():
            for number, (_, sentence) in enumerate(sentences):
                name = self._plan.signature_for(self._prepared[row], sentence)
                rows_by_name.setdefault(name, []).append((row, number))
        for name, rows in rows_by_name.items():
            for group in self._plan.groups([len(self._text(*pair)) for pair in rows]):
                yield name, [rows[place] for place in group]

    def _calls(self) -> list[SignatureCall]:
        calls = []
        self._groups = list(self._group_rows())
        for name, rows in self._groups:
            texts = [self._text(*pair) for pair in rows]
            others = self._plan.inputs if name == self._plan.signature else {}
            chosen = {key: array[[row for row, _ in rows]] for key, array in others.items()}
            calls.append((name, {"text": np.array(texts, object), **chosen}))
        return calls

    def _text(self, row: int, number: int) -> bytes:
        """Returns a sentence as the model reads it: with the symbol in front of its text, such as a language tag."""
        text = self._jobs[row][number][1]
        text = f"{self._prepare.head(self._jobs[row][0][1])}{text}" if number else text
        return (f"{self._plan.tag} {text}" if self._plan.tag and text.strip() else text).encode("utf-8", "replace")

    def _read(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Reads the outputs of the last calls that `_calls` returned."""
        values: dict[tuple[int, int], Arrays] = {}
        for (_, rows), arrays in zip(self._groups, outputs, strict=True):
            for place, pair in enumerate(rows):
                values[pair] = {key: array[place : place + 1] for key, array in arrays.items()}
        for row, sentences in self._jobs.items():
            parts = [self._read_sentence(source, values[row, n]) for n, (_, source) in enumerate(sentences)]
            self._hypotheses[row] = [
                (
                    [Sentence(*pair, each.text) for pair, each in zip(sentences, combination, strict=True)],
                    sum(each.score for each in combination),
                )
                for combination in combinations(parts, self._num_best, by_score=not self._config.decode.sampling)
            ]

    def _read_sentence(self, source: str, values: Mapping[str, np.ndarray]) -> list[_Hypothesis]:
        """Returns the hypotheses of a sentence, best first; only the first one can be missing, with an empty text."""
        if "attention" in values:
            score = float(values["score"][0]) if "score" in values else 0.0
            is_missing = score <= LOWEST
            return [_Hypothesis(AlignedText("", ()) if is_missing else aligned_output(repair(source), values), score)]
        texts, scores = (values[name].reshape(-1).tolist() for name in SIGNATURES[self._plan.signature].outputs)
        hypotheses = [
            _Hypothesis(diagonal(repair(source), text.decode()) if score > LOWEST else AlignedText("", ()), score)
            for text, score in zip(texts, scores, strict=True)
        ]
        return [hypotheses[0], *(each for each in hypotheses[1:] if each.score > LOWEST)]


def padded_texts(rows: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns rows of texts as bytes, object [rows, length of the longest row], padded with ""."""
    width = max(map(len, rows))
    texts = [[*(text.encode() for text in row), *[b""] * (width - len(row))] for row in rows]
    return np.array(texts, object).reshape(len(rows), width)


def _plain(sentences: Sequence[Sentence]) -> str:
    """Returns the translation of a text as the model read it."""
    return "".join(each.before + each.translation.text for each in sentences)
