"""Translates texts with a glossary on a server, with an export's signatures `tokens` and `constrained`."""

import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from t2t_keras.export_contract import CONSTRAINED, LOWEST, SIGNATURES, TOKENS
from t2t_keras.inference.line_preparation import preparation, with_decode_changes
from t2t_keras.inference.protected_lines import finished, sentences_of
from t2t_keras.inference.request import EncodedRequest, Ids, RequestEncoder, numbered, option_arrays, request_batches
from t2t_keras.inference.required_terms import RequiredTerms, check_combination
from t2t_keras.inference.served_protection import Arrays, SignatureCall, padded_texts
from t2t_keras.inference.translation import Translation, translations_of_line
from t2t_keras.runs.run import Run
from t2t_keras.search.batches import padded
from t2t_keras.search.searcher import OPTIONS
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.registry import task
from t2t_keras.text.protection.removal import Sentence, diagonal
from t2t_keras.text.repair import repair
from t2t_keras.text.terms import Glossary
from t2t_keras.text.tokenizer import Tokenizer

# Limits of a call, padding included. The server cannot split a call of a signature of token ids, and other calls wait.
_MAX_TOKENS = 256
_MAX_ROWS = 8


class ServedTerms:
    """Prepares requests with glossaries for one version of an export.

    Args:
        version: the directory of the version.
        changes: decoding settings by name, which replace those of the export.

    Raises:
        InputError: the directory is not an export of this project, or the export's settings do not allow glossaries.
    """

    def __init__(self, version: pathlib.Path, changes: Mapping[str, Any] = MappingProxyType({})) -> None:
        run = Run(version)
        config, self.tokenizer = with_decode_changes(run.config_without_model, changes), Tokenizer.load(run.vocab_path)
        self.task = task(config.data.task)
        writes_labels = self.task.form(self.tokenizer) is not None
        check_combination(config.decode, self.tokenizer, frozenset(OPTIONS), writes_labels)
        self.encoder = RequestEncoder(self.tokenizer, config.decode, config.data, run.excluded)
        self.prepare = preparation(self.tokenizer, config.decode, config.data)

    def __call__(self, texts: Sequence[str], glossary: Sequence[tuple[str, str]], most_rows: int) -> "TextsWithTerms":
        """Prepares the texts of one request with the request's glossary.

        Args:
            texts: the texts.
            glossary: pairs (term, "form|form|...").
            most_rows: maximum number of rows of a call of a signature.

        Raises:
            InputError: an entry of the glossary cannot be used, or a text is not a valid source of the task; names the
                entry or the text.
        """
        rows = [(f"entry {number}", *pair) for number, pair in enumerate(glossary, start=1)]
        terms = RequiredTerms(Glossary.of(rows, "glossary"), self.encoder, self.tokenizer.source.decode)
        return TextsWithTerms(self, terms, texts, min(most_rows, _MAX_ROWS))


class TextsWithTerms:
    """The texts of one request on their way through two searches; made by `ServedTerms`.

    The caller makes the calls in `first` and gives their outputs to `again`. It then makes the calls that `again`
    returns, and gives their outputs to `answer`.

    Attributes:
        first: the calls of `TOKENS`, names of signatures with their inputs.
    """

    def __init__(self, served: ServedTerms, terms: RequiredTerms, texts: Sequence[str], most_rows: int) -> None:
        self._served, self._terms, self._most_rows = served, terms, most_rows
        self._texts = texts
        # The signatures of token ids return no alignment, so the order of the words decides where spans are put back.
        self._prepared = [served.prepare(text, keeps_spans=False, keeps_case=True) for text in texts]
        read = [text if each is None else each.text for text, each in zip(texts, self._prepared, strict=True)]
        self._lines = list(numbered(read, served.encoder))
        self._parts = [part for line in self._lines for part in line.of_parts()]
        self._plain: list[list[Translation]] = []
        self._requests: dict[int, EncodedRequest] = {}
        self.first = self._calls(TOKENS, self._parts)

    def again(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> list[SignatureCall]:
        """Returns the calls of `CONSTRAINED`, given the outputs of the calls in `first`; none if no term is missing."""
        self._plain = self._best_translations(self._parts, outputs)
        self._requests = self._terms.constrained_requests(self._parts, self._plain)
        return self._calls(CONSTRAINED, list(self._requests.values()))

    def answer(self, outputs: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
        """Returns the translations, given the outputs of the calls of `again`.

        Returns:
            By name: translation, string [texts]; score, float32 [texts]; and missing_terms, string [texts, terms], the
            terms of which the translation contains no form, padded with "".
        """
        forced = dict(zip(self._requests, self._best_translations(list(self._requests.values()), outputs), strict=True))
        capitalises = self._served.tokenizer.truecaser is not None
        parts = iter(self._terms.choose(self._parts, self._plain, forced))
        translations = []
        for line in self._lines:
            line_parts = [next(parts) for _ in line.parts]
            translations += translations_of_line(
                self._served.task, line, line_parts, 1, by_score=True, capitalises=capitalises
            )
        translations = list(map(self._restored, range(len(translations)), translations))
        missing = [[use.source for use in each.terms if not use.form] for each in translations]
        scores = [max(translation.score, LOWEST) for translation in translations]
        return {
            "translation": np.array([translation.text.encode() for translation in translations], object),
            "score": np.array(scores, np.float32),
            "missing_terms": padded_texts(missing),
        }

    def _restored(self, row: int, translation: Translation) -> Translation:
        """Returns the translation of a text, given that of the text that the model read."""
        prepared = self._prepared[row]
        if prepared is None:
            return translation
        sentences = [
            Sentence(before, source, diagonal(repair(source), each.text))
            for before, source, each in sentences_of(prepared.text, translation)
        ]
        return finished(self._texts[row], prepared, translation, sentences)

    def _batches(self, parts: Sequence[EncodedRequest]) -> list[list[int]]:
        """Groups parts into calls of at most `_MAX_TOKENS` tokens and the allowed rows; returns their indices."""
        most = self._most_rows
        batches = request_batches(parts, _MAX_TOKENS)
        return [batch[start : start + most] for batch in batches for start in range(0, len(batch), most)]

    def _calls(self, signature: str, parts: Sequence[EncodedRequest]) -> list[SignatureCall]:
        calls = []
        for batch in self._batches(parts):
            sources = [_source(parts[row]) for row in batch]
            lengths = np.array([len(source) for source in sources], np.int32)
            options = option_arrays([parts[row] for row in batch])
            calls.append((signature, {"source_ids": padded(sources), "source_length": lengths, **options}))
        return calls

    def _best_translations(
        self, parts: Sequence[EncodedRequest], outputs: Sequence[Mapping[str, np.ndarray]]
    ) -> list[list[Translation]]:
        """Returns the best translation of each part, given the outputs of the calls from `_calls(parts)`."""
        translations: list[list[Translation]] = [[]] * len(parts)
        for batch, arrays in zip(self._batches(parts), outputs, strict=True):
            rows = (arrays[name] for name in SIGNATURES[TOKENS].outputs)
            for row, ids, length, score in zip(batch, *rows, strict=True):
                translations[row] = [self._translation(_source(parts[row]), tuple(ids[:length].tolist()), float(score))]
        return translations

    def _translation(self, source: Ids, ids: Ids, score: float) -> Translation:
        if not ids:
            return Translation("", -np.inf, -np.inf, 0, 1, (source,), ((),))
        text = repair(self._served.tokenizer.decode(ids))
        return Translation(text, score, np.nan, len(ids), 1, (source,), (ids,))


def _source(part: EncodedRequest) -> Ids:
    """Returns the token ids of a part with their end symbol."""
    return (*part.parts[0], EOS_ID)
