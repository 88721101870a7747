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
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.errors import InputError, named
from t2t_keras.inference import loading
from t2t_keras.inference.explain import (
    Explanation,
    WordAlignment,
    alignment_function,
    explanation_function,
    token_links,
)
from t2t_keras.inference.forced import ForcedScore, check_pairs, pair_batches, token_log_probs_function
from t2t_keras.inference.request import (
    EncodedRequest,
    Ids,
    Request,
    RequestEncoder,
    asked_arrays,
    numbered,
    request_batches,
)
from t2t_keras.inference.required_terms import RequiredTerms, check_combination
from t2t_keras.inference.translation import Translation, found_translations, translations_of_line
from t2t_keras.machine.streams import side_by_side
from t2t_keras.models.contract import Attentions, SearchedModel, SequenceModel, attention_views
from t2t_keras.search.batches import Progress, padded
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.engines import Engine, TensorFlowEngine
from t2t_keras.search.ensemble import Combination
from t2t_keras.search.scoring import normalised_score
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.terms import Glossary
from t2t_keras.text.tokenizer import Tokenizer

_Result = TypeVar("_Result")


class Translator:
    """Translates lines of text; each line's result is independent of the others.

    A model of single sentences translates a line sentence by sentence (`t2t_keras.text.sentences`): between the
    translations stands the white space of the line. A line break ends a sentence. With `config.split="lines"`, and with
    other tasks than translation, a line is translated as a whole.

    Sentences, or whole lines, are first repaired like training data (`t2t_keras.text.repair.repair`): tabs, carriage
    returns and other breaks become blanks, invisible characters are removed. One of more than `max_source_length`
    tokens is split, at a punctuation mark if there is one, and its parts are translated separately.

    Weights are read at each call, so the model may be in training. One trace of the graph serves every batch; each
    combination of prefix, constraints and excluded phrases adds one at its first use. The engine on CTranslate2 takes
    the weights once, when the translator is made.

    Args:
        tokenizer: the tokenizer with the model's vocabulary, and perhaps another one of sources.
        model: the model; see `t2t_keras.models.contract`.
        config: the decoding settings; None means the defaults.
        data: the settings of the training data, of which these count: `lowercase`, whether lines are lowercased first;
            `max_length`, most tokens, end symbol included, that are translated in one part, at least 2; the languages,
            by which sentences are found and joined; and the `task`, which finishes what the model wrote. None means the
            defaults.
        excluded: words or phrases that no translation may contain; see `Request.excluded`.
        engine: what runs the searches; None means TensorFlow.
        glossary: terms of which a translation must have a form if its source has the term; None means none.

    Raises:
        InputError: a beam larger than the vocabulary, an excluded phrase or a form of the glossary that cannot be
            spelled, an unknown task, or something that the engine cannot do.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model: SearchedModel,
        config: DecodeConfig | None = None,
        data: DataConfig | None = None,
        excluded: Sequence[str] = (),
        engine: Engine | None = None,
        glossary: Glossary | None = None,
    ) -> None:
        data = data or DataConfig()
        self.tokenizer = tokenizer
        self.model = model
        self.config = config or DecodeConfig()
        if self.config.beam_size > tokenizer.vocab_size:
            raise InputError(
                f"decode.beam_size={self.config.beam_size} is more than the vocabulary's {tokenizer.vocab_size} entries"
            )
        self.data, self.lowercase = data, data.lowercase
        self.excluded = tuple(excluded)
        self.glossary = glossary
        engine = engine or TensorFlowEngine()
        self._encoder = RequestEncoder(tokenizer, self.config, data, self.excluded, engine.options)
        self.task, self.max_source_length = self._encoder.task, self._encoder.max_source_length
        form = self.task.form(tokenizer)
        self._terms: RequiredTerms | None = None
        if glossary is not None:
            check_combination(self.config, tokenizer, engine.options, writes_labels=form is not None)
            self._terms = RequiredTerms(glossary, self._encoder, tokenizer.source.decode)
        given = self._encoder.excluded, form, tokenizer.continuations
        self._searches = engine.searches(model, self.config, *given)
        self._token_log_probs = token_log_probs_function(model)
        self._explained = explanation_function(model)
        self._alignment_attention = alignment_function(model)

    @property
    def single_model(self) -> SequenceModel:
        """The model, which must not be an ensemble of several, else ValueError."""
        if not isinstance(self.model, keras.Model):
            raise ValueError(f"translator.model must be a keras.Model, got {type(self.model).__name__}")
        return cast(SequenceModel, self.model)

    @classmethod
    def load(
        cls,
        model_dir: str | os.PathLike[str],
        checkpoint: str | None = None,
        config: DecodeConfig | None = None,
        excluded: Sequence[str] = (),
        engine: EngineName = "tensorflow",
        compute_type: ComputeType = "float32",
        glossary: Glossary | None = None,
    ) -> "Translator":
        """Loads the translator of a run or an export.

        Args:
            model_dir: directory of the run, of the export, or of one of the export's versions.
            checkpoint: which weights; see `t2t_keras.runs.load.load_model`.
            config: decoding settings; None means those of the run's `config.json` or of the export.
            excluded: words or phrases that no translation may contain, in addition to those of an export.
            engine: "tensorflow", or "ctranslate2", which is faster on a CPU; see `CTranslate2Engine`.
            compute_type: how CTranslate2 multiplies.
            glossary: terms of which a translation must have a form.

        Raises:
            InputError: no such run or checkpoint, a vocabulary that does not fit, or something that the engine cannot
                do.
        """
        loaded = loading.load_run(model_dir, checkpoint)
        made = loading.engine_of(engine, compute_type, loaded.config.data.max_length)
        return cls._of(loaded, config, excluded, made, glossary)

    @classmethod
    def load_ensemble(
        cls,
        members: Sequence[tuple[str | os.PathLike[str], str | None]],
        combination: Combination = "probabilities",
        config: DecodeConfig | None = None,
        excluded: Sequence[str] = (),
        glossary: Glossary | None = None,
    ) -> "Translator":
        """Loads the translator of several runs or checkpoints, whose predictions are averaged.

        `members` are pairs of a run's directory and a checkpoint, such as `RunCheckpoint`; `combination` names what is
        averaged, "probabilities" or "log_probabilities". Without `config` the settings are the first run's. For
        `excluded` and `glossary` see `load`.

        Raises:
            InputError: as for `load`, or members whose vocabularies or whose training texts' case differ.
            ValueError: no member, or an unknown combination.
        """
        return cls._of(loading.load_ensemble(members, combination), config, excluded, None, glossary)

    @classmethod
    def _of(
        cls,
        loaded: loading.Loaded,
        config: DecodeConfig | None,
        excluded: Sequence[str],
        engine: Engine | None,
        glossary: Glossary | None,
    ) -> "Translator":
        excluded = tuple(dict.fromkeys((*loaded.excluded, *excluded)))
        parts = loaded.tokenizer, loaded.model, config or loaded.config.decode, loaded.config.data
        return cls(*parts, excluded, engine, glossary)

    def translate(
        self, lines: Iterable[str | Request], on_progress: Progress | None = None, scored: bool = True
    ) -> list[Translation]:
        """Translates lines, all held in memory, and returns the best translation of each, or its first sample.

        Args:
            lines: any text. A `Request` also restricts the translation.
            on_progress: called after each batch with the number of parts done and the total: one part for each
                sentence, none for a blank line and several for a very long sentence.
            scored: whether scores are needed. Without them greedy search is faster; `score` and `log_prob` may be NaN.

        Raises:
            InputError: a line is no source of the task, or a request cannot be satisfied; names the line.
        """
        encoded = list(numbered(list(_several(lines)), self._encoder))
        return [best for best, *_ in self._translations(encoded, 1, on_progress, scored)]

    def translate_nbest(
        self, lines: Iterable[str | Request], num_best: int, on_progress: Progress | None = None, scored: bool = True
    ) -> list[list[Translation]]:
        """Like `translate`, but returns the `num_best` best hypotheses, or first samples, of each line.

        A line has fewer if the search found fewer, but at least one; the first is that of `translate`.

        Raises:
            InputError: as for `translate`, or `num_best` is not in [1, `config.beam_size`].
        """
        if not 1 <= num_best <= self.config.beam_size:
            raise InputError(f"num_best must be in [1, decode.beam_size={self.config.beam_size}], got {num_best}")
        return self._translations(list(numbered(list(_several(lines)), self._encoder)), num_best, on_progress, scored)

    def check(self, request: str | Request) -> None:
        """Checks a line without searching: raises the `InputError` of `translate`, but without a line number."""
        if isinstance(request, str):
            self._encoder.check_source(self.repaired(request))
        else:
            self._encoder.encode(request)

    def translate_stream(self, lines: Iterable[str | Request], chunk_lines: int = 5000) -> Iterator[Translation]:
        """`translate` for input of any size, in chunks of lines; larger chunks need less padding.

        Raises:
            InputError: as for `translate`; the line is counted from the start of its chunk.
            ValueError: `chunk_lines` below 1.
        """
        if chunk_lines < 1:
            raise ValueError(f"chunk_lines must be positive, got {chunk_lines}")
        remaining = iter(_several(lines))
        while chunk := list(itertools.islice(remaining, chunk_lines)):
            yield from self.translate(chunk)

    def score(self, lines: Sequence[str], translations: Sequence[str]) -> list[ForcedScore]:
        """Scores given translations, one per line, with the length penalty of the settings but without coverage.

        Both sides are repaired like lines to translate; a blank source is scored as an end symbol alone. A translation
        found by the search gets the search's score if the tokenizer splits its text into the same tokens.

        Raises:
            InputError: unequal numbers of lines, a line of more than `MAX_SCORED_LENGTH` tokens, or a translation that
                is no output of the task, such as a label that the model does not have.
        """
        return self.score_tokens(*self.encoded(lines, translations))

    def score_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[ForcedScore]:
        """`score` of token ids with end symbols, such as `Translation.source_ids` and `token_ids`, of any length."""

        def finish(_: Ids, target: Ids, log_probs: np.ndarray) -> ForcedScore:
            log_probs = log_probs[: len(target)]
            total = float(log_probs.sum(dtype=np.float64))
            settings = self.config.length_penalty, self.config.length_normalization
            score = float(normalised_score(total, len(target), *settings))
            return ForcedScore(total, score, tuple(self.tokenizer.pieces(target)), tuple(map(float, log_probs)))

        return self._each_pair(self._token_log_probs, finish, sources, targets)

    def explain(self, lines: Sequence[str], translations: Sequence[str]) -> list[Explanation]:
        """Explains given translations, one per line: attention, word alignment, and the probabilities of `score`.

        The result takes 4 bytes a layer, head and pair of tokens: in the source, in the target and between them.

        Raises:
            InputError: as for `score`; the model does not offer its attention; or an ensemble's layers or heads differ.
        """
        return self.explain_tokens(*self.encoded(lines, translations))

    def explain_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Explanation]:
        """`explain` of token ids with end symbols, such as those of a `Translation`, of any length.

        Raises:
            InputError: as for `explain`.
        """
        attention_views(self.model)  # raises if it has none

        def finish(source: Ids, target: Ids, found: tuple[np.ndarray, Attentions]) -> Explanation:
            return Explanation.of(*self._pieces(source, target), *found)

        return self._each_pair(self._explained, finish, sources, targets)

    def link_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[tuple[int, int]]]:
        """The source token of each target token, as `Explanation.alignment` has them, without keeping attention.

        Raises:
            InputError: the model does not offer its attention.
        """
        attention_views(self.model)  # raises if it has none

        def finish(source: Ids, target: Ids, weights: np.ndarray) -> list[tuple[int, int]]:
            return token_links(*self._pieces(source, target), weights)

        return self._each_pair(self._alignment_attention, finish, sources, targets)

    def align_tokens(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[WordAlignment]:
        """The word alignments of `explain_tokens`, without keeping its attention in memory.

        Raises:
            InputError: the model does not offer its attention, or its vocabulary does not say where words begin.
        """
        attention_views(self.model)  # raises if it has none
        if not self.tokenizer.marks_words:
            raise InputError("there is no word alignment: tensor2tensor's subwords do not say where words begin")

        def finish(source: Ids, target: Ids, weights: np.ndarray) -> WordAlignment:
            return WordAlignment.of(*self._pieces(source, target), weights)

        return self._each_pair(self._alignment_attention, finish, sources, targets)

    def _each_pair(
        self,
        compute: Callable[[np.ndarray, np.ndarray], Any],
        finish: Callable[[Ids, Ids, Any], _Result],
        sources: Sequence[Ids],
        targets: Sequence[Ids],
    ) -> list[_Result]:
        """What `finish` makes of each pair and of what `compute` has found for it in a batch."""
        results: dict[int, _Result] = {}
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch):
            values = tf.nest.map_structure(lambda value: value.numpy(), compute(*batch))
            for place, row in enumerate(rows):
                found = tf.nest.map_structure(lambda value, place=place: value[place], values)
                results[row] = finish(sources[row], targets[row], found)
        return [results[row] for row in range(len(sources))]

    def encoded(self, lines: Sequence[str], translations: Sequence[str]) -> tuple[list[Ids], list[Ids]]:
        """The token ids of lines and of what the model writes for their translations, with end symbols.

        Raises:
            InputError: as for `score`.
        """
        sources = self.tokenizer.source.encode_batch([self.beginning(self.repaired(line)) for line in lines])
        # Where there are fewer lines than translations, they are counted below.
        pairs = enumerate(zip(itertools.chain(lines, itertools.repeat("")), translations, strict=False), start=1)
        targets = self.tokenizer.encode_batch([self._target(number, *pair) for number, pair in pairs])
        encoded = [(*ids, EOS_ID) for ids in sources], [(*ids, EOS_ID) for ids in targets]
        check_pairs(*encoded)
        return encoded

    def _target(self, number: int, line: str, translation: str) -> str:
        with named(f"line {number:,}"):
            return self._encoder.target(line, translation)

    def _pieces(self, source: Ids, target: Ids) -> tuple[list[str], list[str]]:
        return self.tokenizer.source.pieces(source), self.tokenizer.pieces(target)

    def search(self, source_ids: np.ndarray | tf.Tensor) -> SearchResult:
        """Finds `config.beam_size` hypotheses, best first, for padded source ids, int32 [batch, source_len]."""
        return self._searches(source_ids)

    def repaired(self, line: str) -> str:
        """A line as the tokenizer gets it: on one line, without invisible characters, lowercased if configured."""
        return self._encoder.repaired(line)

    def beginning(self, text: str) -> str:
        """What is read of a repaired text: its first part if the task reads no more, else all."""
        return self._encoder.beginning(text)

    def _translations(
        self, encoded: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Up to `num_best` translations of each line."""
        # The best answer of a line's parts is chosen by score.
        scored = scored or (self.task.context is not None and any(len(request.parts) > 1 for request in encoded))
        parts = [part for request in encoded for part in request.of_parts()]
        if self._terms is None:
            found = self._translate_parts(parts, num_best, on_progress, scored)
        else:
            found = self._terms.translations(
                parts,
                lambda first: self._translate_parts(first, num_best, on_progress, scored),
                lambda again: self._translate_parts(again, num_best, None, scored),
            )
        part_translations = iter(found)
        lines = [list(itertools.islice(part_translations, len(request.parts))) for request in encoded]
        by_score = not self.config.sampling
        return [
            translations_of_line(self.task, request, line, num_best, by_score)
            for request, line in zip(encoded, lines, strict=True)
        ]

    def _translate_parts(
        self, parts: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Up to `num_best` translations of each request, which all have one part."""
        translations: list[list[Translation]] = [[]] * len(parts)
        done = 0
        batches = request_batches(parts, self.config.tokens_per_batch)
        results = side_by_side(lambda rows: self._hypotheses([parts[row] for row in rows], num_best, scored), batches)
        with contextlib.closing(results):
            for rows, batch_translations in zip(batches, results, strict=True):
                for row, hypotheses in zip(rows, batch_translations, strict=True):
                    translations[row] = hypotheses
                done += len(rows)
                if on_progress is not None:
                    on_progress(done, len(parts))
        return translations

    def _hypotheses(self, parts: Sequence[EncodedRequest], num_best: int, scored: bool) -> list[list[Translation]]:
        """The translations of each part of one batch, whose requests have the same kinds of restrictions."""
        sources = [(*request.parts[0], EOS_ID) for request in parts]
        result = self._searches(padded(sources), num_best == 1, scored, **asked_arrays(parts))
        return found_translations(result, sources, self.tokenizer, num_best)


def _several(lines: Iterable[str | Request]) -> Iterable[str | Request]:
    """The lines; a TypeError for one text, whose letters would be taken for lines."""
    if isinstance(lines, str):
        raise TypeError("`lines` must be several texts, such as a list of one, not a text itself")
    return lines
