"""The translator: text in, text out."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError, named
from t2t_keras.inference import loading
from t2t_keras.inference.explain import Explanation, WordAlignment, alignment_function, explanation_function
from t2t_keras.inference.forced import ForcedScore, check_pairs, pair_batches, token_log_probs_function
from t2t_keras.inference.line_preparation import preparation
from t2t_keras.inference.marked_text import TokenLinks, token_links
from t2t_keras.inference.protected_lines import ProtectedLines
from t2t_keras.inference.request import (
    EncodedRequest,
    Ids,
    Request,
    RequestEncoder,
    numbered,
    option_arrays,
    request_batches,
)
from t2t_keras.inference.required_terms import RequiredTerms, check_combination
from t2t_keras.inference.translation import Translation, translations_of_line, translations_of_result
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.machine.streams import map_in_parallel
from t2t_keras.models.contract import Attentions, SearchedModel, SequenceModel, attention_views
from t2t_keras.search.batches import Progress, padded
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.ensemble import Combination
from t2t_keras.search.scoring import normalised_score
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.text_tokenizer import TextTokenizer, check_tokenizer

_Result = TypeVar("_Result")
_Texts = TypeVar("_Texts", bound=Iterable[str | Request])


class Translator:
    """Translates lines of text; each line's result is independent of the others.

    Words and symbols with characters that the training text never had, and the spans that `decode.protect` names, are
    not translated: they come out exactly once, where the word alignment places them (`t2t_keras.text.protection`).

    By default, the translation task splits a line into sentences (`t2t_keras.text.sentences`), translates each
    separately, and joins the translations with the line's own white space. A line break always ends a sentence. With
    `decode.split="lines"`, and in all other tasks, a line is translated as a whole.

    Sentences, or whole lines, are first repaired like training data (`t2t_keras.text.repair.repair`): tabs, carriage
    returns and other breaks become spaces, and invisible characters are removed. Text that does not fit into
    `max_source_length` tokens is split into parts, at a punctuation mark if possible, and the parts are translated
    separately.

    The TensorFlow engine reads the weights at each call, so the model may be in training. A search is traced at its
    first use and then serves every batch; each combination of prefix, constraints and excluded phrases has its own
    trace. The CTranslate2 engine copies the weights once, when the translator is made.

    Args:
        tokenizer: the tokenizer with the model's vocabulary, possibly with a separate vocabulary for sources: a
            `Tokenizer` of this package or any other `TextTokenizer`. If it has a `truecaser`, the translation of each
            sentence gets a capital first letter.
        model: the model; see `t2t_keras.models.contract`.
        settings: the settings, or only those of decoding; None means the defaults.
        data: the settings of the training data; None means the defaults. The translator uses `lowercase` (whether lines
            and prefixes are lowercased first), `max_length` (maximum number of tokens of a part, end symbol included,
            at least 2), the languages (for splitting and joining sentences), and the `task` (which post-processes the
            model's output).

    Attributes:
        settings: the settings.
        config: the settings of decoding.
        task: the task.
        max_source_length: maximum number of tokens of a part, end symbol included.

    Raises:
        ValueError: the tokenizer lacks a member of `TextTokenizer`.
        InputError: the beam is larger than the vocabulary, an excluded phrase or a form of the glossary cannot be
            spelled, the task or the engine is unknown, or the engine does not support a setting.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        model: SearchedModel,
        settings: TranslatorSettings | DecodeConfig | None = None,
        data: DataConfig | None = None,
    ) -> None:
        check_tokenizer(tokenizer)
        data = data or DataConfig()
        self.tokenizer = tokenizer
        self.model = model
        self.config = TranslatorSettings.of(settings).decode or DecodeConfig()
        self.settings = TranslatorSettings.of(settings).completed(self.config)
        if self.config.beam_size > tokenizer.vocab_size:
            raise InputError(
                f"decode.beam_size={self.config.beam_size} is more than the vocabulary's {tokenizer.vocab_size} entries"
            )
        self.data = data
        engine = loading.engine_of(self.settings, data.max_length)
        self._encoder = RequestEncoder(tokenizer, self.config, data, self.settings.excluded, engine.options)
        self.task, self.max_source_length = self._encoder.task, self._encoder.max_source_length
        form = self.task.form(tokenizer)
        self._terms: RequiredTerms | None = None
        if (glossary := self.settings.glossary) is not None:
            check_combination(self.config, tokenizer, engine.options, writes_labels=form is not None)
            self._terms = RequiredTerms(glossary, self._encoder, tokenizer.source.decode)
        prepare = preparation(tokenizer, self.config, data)
        self._protected = ProtectedLines(prepare, tokenizer, self.link_tokens, self._encoder.encode)
        options = self._encoder.excluded, form, tokenizer.continuations
        self._searcher = engine.searcher(model, self.config, *options)
        self._token_log_probs = token_log_probs_function(model)
        self._explain = explanation_function(model)
        self._alignment_attention = alignment_function(model)

    @property
    def single_model(self) -> SequenceModel:
        """The model, if it is a single one.

        Raises:
            ValueError: the model is an ensemble.
        """
        if not isinstance(self.model, keras.Model):
            raise ValueError(f"translator.model must be a keras.Model, got {type(self.model).__name__}")
        return cast(SequenceModel, self.model)

    @classmethod
    def load(
        cls,
        model_dir: str | os.PathLike[str],
        checkpoint: str | None = None,
        settings: TranslatorSettings | DecodeConfig | None = None,
    ) -> "Translator":
        """Loads the translator of a run or an export.

        Args:
            model_dir: directory of the run, of the export, or of one of the export's versions.
            checkpoint: the weights to load; see `t2t_keras.runs.load.load_model`.
            settings: the settings, or only those of decoding; they are completed by those that are stored with the run
                or the export.

        Raises:
            InputError: the run or the checkpoint does not exist, the size of the vocabulary is not the model's, the
                engine is unknown, or it does not support a setting.
        """
        return cls._create(loading.load_run(model_dir, checkpoint), settings)

    @classmethod
    def load_ensemble(
        cls,
        members: Sequence[tuple[str | os.PathLike[str], str | None]],
        combination: Combination = "probabilities",
        settings: TranslatorSettings | DecodeConfig | None = None,
    ) -> "Translator":
        """Loads the translator of an ensemble of runs or checkpoints, whose predictions are averaged.

        Args:
            members: pairs of a run's directory and a checkpoint, such as `RunCheckpoint`.
            combination: what is averaged, "probabilities" or "log_probabilities".
            settings: as for `load`; completed by the decoding settings of the first member and the excluded phrases of
                all members.

        Raises:
            InputError: as for `load`; or the members have different vocabularies, or were trained on text of
                different case.
            ValueError: there is no member, or the combination is unknown.
        """
        return cls._create(loading.load_ensemble(members, combination), settings)

    @classmethod
    def _create(cls, loaded: loading.Loaded, settings: TranslatorSettings | DecodeConfig | None) -> "Translator":
        completed = TranslatorSettings.of(settings).completed(loaded.config.decode, loaded.excluded)
        return cls(loaded.tokenizer, loaded.model, completed, loaded.config.data)

    def translate(
        self, lines: Iterable[str | Request], on_progress: Progress | None = None, scored: bool = True
    ) -> list[Translation]:
        """Translates lines, which are all held in memory.

        Args:
            lines: the texts. A `Request` also restricts the translation.
            on_progress: called after each batch with the number of parts done and the total. A sentence is one part,
                or several if it is very long; a blank line has none.
            scored: whether scores are needed. Without them greedy search is faster, and `score` and `log_prob` may be
                NaN.

        Returns:
            The best translation of each line; when sampling, its first sample.

        Raises:
            InputError: a line is not a valid source of the task, or a request cannot be satisfied. The message names
                the line.
        """
        return [best for best, *_ in self._translate_lines(list(_check_lines(lines)), 1, on_progress, scored)]

    def translate_nbest(
        self, lines: Iterable[str | Request], num_best: int, on_progress: Progress | None = None, scored: bool = True
    ) -> list[list[Translation]]:
        """Like `translate`, but returns up to `num_best` hypotheses of each line, best first; when sampling, samples.

        Each line has at least one, and fewer than `num_best` only if the search found fewer. The first is the one that
        `translate` returns.

        Raises:
            InputError: as for `translate`, or `num_best` is not in [1, `config.beam_size`].
        """
        if not 1 <= num_best <= self.config.beam_size:
            raise InputError(f"num_best must be in [1, decode.beam_size={self.config.beam_size}], got {num_best}")
        return self._translate_lines(list(_check_lines(lines)), num_best, on_progress, scored)

    def translate_aligned(self, lines: Sequence[str]) -> list[tuple[Translation, AlignedText]]:
        """Translates lines, and aligns the translation of each with the line; a missing one is the line itself.

        Raises:
            InputError: as for `translate`, or the model does not offer its attention.
        """
        attention_views(self.model)  # raises if the model does not offer it
        _check_lines(lines)
        return self._protected.aligned_translations(
            lines, lambda read: self._translations(list(numbered(read, self._encoder)), 1, None, scored=False)
        )

    def check(self, request: str | Request) -> None:
        """Checks a line without translating it.

        Raises:
            InputError: as for `translate`, but without a line number.
        """
        if isinstance(request, str):
            self._encoder.check_source(self._encoder.source(request))
        else:
            self._encoder.encode(self._protected.read(request))

    def translate_stream(self, lines: Iterable[str | Request], chunk_lines: int = 5000) -> Iterator[Translation]:
        """Translates input of any size, and yields the translation of each line in order.

        Args:
            lines: as for `translate`.
            chunk_lines: lines that are translated together; larger chunks need less padding but more memory.

        Raises:
            InputError: as for `translate`; the line is counted from the start of its chunk.
            ValueError: `chunk_lines` is below 1.
        """
        if chunk_lines < 1:
            raise ValueError(f"chunk_lines must be positive, got {chunk_lines}")
        remaining = iter(_check_lines(lines))
        while chunk := list(itertools.islice(remaining, chunk_lines)):
            yield from self.translate(chunk)

    def score(self, lines: Sequence[str], translations: Sequence[str]) -> list[ForcedScore]:
        """Scores given translations, one per line, with the configured length penalty but without coverage.

        Both sides are repaired like lines to translate, and no line is split. A blank source is scored as a lone end
        symbol. A translation that the search found gets the search's score if the tokenizer splits its text into the
        same tokens.

        Raises:
            InputError: the numbers of lines differ, a line has more than `MAX_SCORED_LENGTH` tokens, or a translation
                is not a valid output of the task, such as a label that the model does not have.
        """
        return self.score_tokens(*self.encoded(lines, translations))

    def score_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[ForcedScore]:
        """Like `score`, but of token ids with end symbols, such as `Translation.source_ids` and `token_ids`.

        The sequences may have any length.
        """

        def finish(_: Ids, target: Ids, log_probs: np.ndarray) -> ForcedScore:
            log_probs = log_probs[: len(target)]
            total = float(log_probs.sum(dtype=np.float64))
            settings = self.config.length_penalty, self.config.length_normalization
            score = float(normalised_score(total, len(target), *settings))
            return ForcedScore(total, score, tuple(self.tokenizer.pieces(target)), tuple(map(float, log_probs)))

        return self._map_pairs(self._token_log_probs, finish, sources, targets)

    def explain(self, lines: Sequence[str], translations: Sequence[str]) -> list[Explanation]:
        """Explains given translations, one per line: attention, word alignment, and the probabilities of `score`.

        The attention takes 4 bytes per layer, head and pair of tokens; pairs are within the source, within the target,
        and between the two.

        Raises:
            InputError: as for `score`; or the model does not offer its attention, or the members of an ensemble differ
                in layers or heads of cross-attention.
        """
        return self.explain_tokens(*self.encoded(lines, translations))

    def explain_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Explanation]:
        """Like `explain`, but of token ids with end symbols, such as those of a `Translation`, of any length.

        Raises:
            InputError: the model does not offer its attention, or the members of an ensemble differ in layers or heads
                of cross-attention.
        """
        attention_views(self.model)  # raises if the model does not offer it

        def finish(source: Ids, target: Ids, details: tuple[np.ndarray, Attentions]) -> Explanation:
            return Explanation.of(*self._pieces(source, target), *details)

        return self._map_pairs(self._explain, finish, sources, targets)

    def link_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[TokenLinks]:
        """Links the tokens of each pair of sequences by the attention that `Explanation.alignment` uses.

        It does not keep the attention of all layers in memory.

        Raises:
            InputError: the model does not offer its attention.
        """
        attention_views(self.model)  # raises if the model does not offer it

        def finish(source: Ids, target: Ids, weights: np.ndarray) -> TokenLinks:
            return token_links(*self._pieces(source, target), weights)

        return self._map_pairs(self._alignment_attention, finish, sources, targets)

    def align_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[WordAlignment]:
        """Aligns words as `Explanation.word_alignment` does, without keeping the attention of all layers in memory.

        Raises:
            InputError: the model does not offer its attention, or its vocabulary does not mark where words begin.
        """
        attention_views(self.model)  # raises if the model does not offer it
        if not self.tokenizer.marks_words:
            raise InputError(
                "word alignment is not available: the vocabulary's entries do not mark the beginnings of words"
            )

        def finish(source: Ids, target: Ids, weights: np.ndarray) -> WordAlignment:
            return WordAlignment.of(*self._pieces(source, target), weights)

        return self._map_pairs(self._alignment_attention, finish, sources, targets)

    def _map_pairs(
        self,
        compute: Callable[[np.ndarray, np.ndarray], Any],
        finish: Callable[[Ids, Ids, Any], _Result],
        sources: Sequence[Ids],
        targets: Sequence[Ids],
    ) -> list[_Result]:
        """Runs `compute` on batches of pairs, and returns `finish(source, target, row of the result)` of each pair."""
        results: dict[int, _Result] = {}
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch):
            values = tf.nest.map_structure(lambda value: value.numpy(), compute(*batch))
            for place, row in enumerate(rows):
                result = tf.nest.map_structure(lambda value, place=place: value[place], values)
                results[row] = finish(sources[row], targets[row], result)
        return [results[row] for row in range(len(sources))]

    def encoded(self, lines: Sequence[str], translations: Sequence[str]) -> tuple[list[Ids], list[Ids]]:
        """Encodes lines and their translations, as the model writes them, as token ids with end symbols.

        Raises:
            InputError: as for `score`.
        """
        _check_lines(lines)
        _check_lines(translations, "translations")
        for number, translation in enumerate(translations, start=1):
            with named(f"line {number:,}"):
                self._encoder.check_labels(translation)
        sources, targets = self.prepared(lines, translations)
        encoded = (
            [(*ids, EOS_ID) for ids in self.tokenizer.source.encode_batch(sources)],
            [(*ids, EOS_ID) for ids in self.tokenizer.encode_batch(targets)],
        )
        check_pairs(*encoded)
        return encoded

    def prepared(self, lines: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the texts that the model reads for lines, and those that it was trained to write for these outputs.

        Raises:
            InputError: a line is not a valid source; names the line, counted from 1.
        """
        sources = [self._encoder.source(line) for line in lines]
        for number, source in enumerate(sources, start=1):
            with named(f"line {number:,}"):
                self._encoder.check_source(source)
        targets = list(map(self._encoder.target, itertools.chain(lines, itertools.repeat("")), outputs))
        return list(map(self._encoder.beginning, sources)), targets

    def _pieces(self, source: Ids, target: Ids) -> tuple[list[str], list[str]]:
        return self.tokenizer.source.pieces(source), self.tokenizer.pieces(target)

    def search(self, source_ids: np.ndarray | tf.Tensor) -> SearchResult:
        """Finds `config.beam_size` hypotheses, best first, for padded source ids, int32 [batch, source_len]."""
        return self._searcher(source_ids)

    def _translate_lines(
        self, lines: Sequence[str | Request], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Returns up to `num_best` translations of each line, with its protected spans."""

        def translate(read: Sequence[str | Request], progress: Progress | None = None) -> list[list[Translation]]:
            return self._translations(list(numbered(read, self._encoder)), num_best, progress, scored)

        return self._protected.translations(lines, lambda read: translate(read, on_progress), translate)

    def _translations(
        self, encoded: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Returns up to `num_best` translations of each line."""
        # A task with a context chooses the best answer among a line's parts by score.
        scored = scored or (self.task.context is not None and any(len(request.parts) > 1 for request in encoded))
        parts = [part for request in encoded for part in request.of_parts()]
        if self._terms is None:
            translations = self._translate_parts(parts, num_best, on_progress, scored)
        else:
            translations = self._terms.translations(
                parts,
                lambda requests: self._translate_parts(requests, num_best, on_progress, scored),
                lambda requests_with_terms: self._translate_parts(requests_with_terms, num_best, None, scored),
            )
        part_translations = iter(translations)
        lines = [list(itertools.islice(part_translations, len(request.parts))) for request in encoded]
        options = {"by_score": not self.config.sampling, "capitalises": self.tokenizer.truecaser is not None}
        return [
            translations_of_line(self.task, request, line, num_best, **options)
            for request, line in zip(encoded, lines, strict=True)
        ]

    def _translate_parts(
        self, parts: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Returns up to `num_best` translations of each request; every request has exactly one part."""
        translations: list[list[Translation]] = [[]] * len(parts)
        done = 0
        batches = request_batches(parts, self.config.tokens_per_batch)
        results = map_in_parallel(
            lambda rows: self._hypotheses([parts[row] for row in rows], num_best, scored), batches
        )
        with contextlib.closing(results):
            for rows, batch_translations in zip(batches, results, strict=True):
                for row, hypotheses in zip(rows, batch_translations, strict=True):
                    translations[row] = hypotheses
                done += len(rows)
                if on_progress is not None:
                    on_progress(done, len(parts))
        return translations

    def _hypotheses(self, parts: Sequence[EncodedRequest], num_best: int, scored: bool) -> list[list[Translation]]:
        """Translates one batch of requests of one part each, which all have the same kinds of restrictions."""
        sources = [(*request.parts[0], EOS_ID) for request in parts]
        result = self._searcher(padded(sources), num_best == 1, scored, **option_arrays(parts))
        return translations_of_result(result, sources, self.tokenizer, num_best)


def _check_lines(lines: _Texts, name: str = "lines") -> _Texts:
    """Returns the lines; raises a TypeError for a single string, whose characters would be taken for lines."""
    if isinstance(lines, str):
        raise TypeError(f"`{name}` must be a sequence of texts, such as a list of one text, not a single text")
    return lines
