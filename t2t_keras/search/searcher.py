"""The searches of a model: a plain one, and one for each combination of prefix, constraints and excluded phrases."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import BFLOAT16, COVERAGE, Search, StepModel
from t2t_keras.search import beam_search as beam
from t2t_keras.search.batches import padded
from t2t_keras.search.beam_search import SearchResult, beam_search
from t2t_keras.search.goal import Goal
from t2t_keras.search.greedy import GreedyState
from t2t_keras.search.hoisting import HoistedWeights
from t2t_keras.search.random_numbers import sentence_keys
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.restrictions.rules import ExcludedPhrases, NoRepeatNgram, Rule
from t2t_keras.search.restrictions.tracking import RANKS
from t2t_keras.search.sampling import sample
from t2t_keras.search.state import SearchState
from t2t_keras.symbols import PAD_ID

# Optional inputs of a search, and the fields of `Goal` that hold them.
OPTIONS = {"prefix": "prefixes", "constraints": "constraints", "excluded": "excluded"}


def output_limits(source_lengths: Any, config: DecodeConfig) -> tf.Tensor:
    """Returns the maximum numbers of output tokens, int32 [batch], end symbols included.

    They are the source lengths times the factor, rounded up, plus the offset.
    """
    limits = tf.math.ceil(config.max_length_factor * tf.cast(source_lengths, tf.float32))
    return tf.cast(limits, tf.int32) + config.max_length_offset


def required_capabilities(config: DecodeConfig) -> frozenset[str]:
    """Returns the capabilities that a search with this configuration requires of a model."""
    requested = {COVERAGE: config.coverage_penalty > 0, BFLOAT16: config.bfloat16}
    return frozenset(name for name, is_requested in requested.items() if is_requested)


class Searcher:
    """The searches of one model with one configuration.

    Each kind of search is traced at its first use and then serves every batch. A batch without options runs a graph
    without them.

    Args:
        model: the model.
        config: the decoding settings.
        excluded: token sequences that no output may contain.
        form: the form of every output; None means any.
        continuations: tokens that continue a word; see `Goal`.

    Raises:
        InputError: the configuration requires a capability that the model lacks.
    """

    def __init__(
        self,
        model: StepModel,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        form: Form | None = None,
        continuations: Sequence[int] = (),
    ) -> None:
        self._model, self._config, self._form, self._continuations = model, config, form, continuations
        self._capabilities = required_capabilities(config)
        if missing := self._capabilities - model.capabilities:
            names = {COVERAGE: "decode.coverage_penalty", BFLOAT16: "decode.bfloat16"}
            settings = ", ".join(names[name] for name in sorted(missing))
            raise InputError(f"{settings}: the model does not support {' and '.join(sorted(missing))}; omit it")
        self._rules: list[Rule] = []
        if config.no_repeat_ngram_size:
            self._rules.append(NoRepeatNgram(config.no_repeat_ngram_size))
        if excluded:
            self._rules.append(ExcludedPhrases(excluded))
        if form:
            self._rules.append(form.rule)
        self._has_options = bool(config.sampling or config.coverage_penalty or config.num_groups > 1 or self._rules)
        # All variants are created here, before they are traced, so that threads share them.
        kinds = itertools.chain.from_iterable(
            itertools.combinations(OPTIONS, count) for count in range(len(OPTIONS) + 1)
        )
        variants = [(kind, True) for kind in kinds] + [((), False)]
        self._compiled = {
            (frozenset(kind), scored, only_best): self._compile(kind, scored, only_best)
            for (kind, scored), only_best in itertools.product(variants, (False, True))
        }

    def __call__(self, source_ids: Any, only_best: bool = False, scored: bool = True, **options: Any) -> SearchResult:
        """Returns one or `config.beam_size` hypotheses per sentence, best first, or samples in order of their numbers.

        Args:
            source_ids: int32 [batch, source_len], each sentence with its end symbol, padded at the end.
            only_best: whether to return one hypothesis per sentence; a beam search then ends as soon as it is settled.
            scored: whether scores are needed; without them, a greedy search without options is faster and returns NaN.
            options: any of "prefix", int32 [batch, prefix_len], "constraints", int32 [batch, constraints, phrases,
                phrase_len], and "excluded", int32 [batch, phrases, phrase_len]; see `Goal`.
        """
        is_plain = not options and not self._has_options
        always_scored = self._config.beam_size > 1 or not is_plain  # one trace serves both values
        kind = frozenset(options), scored or always_scored, only_best
        return self._compiled[kind](source_ids, *(options[name] for name in OPTIONS if name in options))

    def sample(self, source_ids: tf.Tensor, seeds: tf.Tensor) -> SearchResult:
        """Draws samples with one seed per sentence, int64 [batch].

        This function is not compiled: it becomes part of a graph that the caller traces.

        Raises:
            ValueError: `config.sampling` is off.
        """
        if not self._config.sampling:
            raise ValueError(f"config.sampling must be true for samples, got {self._config.sampling}")
        return self._search(source_ids, True, None, {}, seeds)

    def best(self, source_ids: tf.Tensor, num_best: tf.Tensor) -> SearchResult:
        """Returns the `num_best` best hypotheses or first samples, an int32 scalar; not compiled, like `sample`."""
        return self._search(source_ids, True, num_best, {})

    def start(self, source_ids: tf.Tensor) -> SearchState | GreedyState:
        """Returns the state before the first step of a search for the best hypothesis; not compiled, like `sample`."""
        search = self._start_search(source_ids, self._model.encode(source_ids))
        return beam.start(search.cache, self._goal(source_ids, num_best=1))

    def advance(
        self, source_ids: tf.Tensor, state: SearchState | GreedyState, steps: tf.Tensor
    ) -> tuple[SearchState | GreedyState, SearchResult, tf.Tensor]:
        """Continues a search; not compiled, like `sample`.

        Args:
            source_ids: int32 [batch, source_len], as given to `start`.
            state: the state that `start` or an earlier call of this method returned.
            steps: int32 scalar, maximum number of steps to make.

        Returns:
            The state after the steps, the best hypotheses so far, and whether each sentence's hypothesis is final, bool
            [batch]. A final hypothesis is the one that a search with `only_best` returns.
        """
        goal = self._goal(source_ids, num_best=1)
        search = self._start_search(source_ids, self._placeholder_memory())
        state = beam.make_steps(search.step, state, goal, steps)
        return state, beam.result(state, goal, so_far=True), beam.done_sentences(state, goal)

    def _placeholder_memory(self) -> Any:
        """Returns zeros in the structure of a memory, because steps read the memory only from their cache."""
        encode = tf.function(self._model.encode, autograph=False)
        form = encode.get_concrete_function(tf.TensorSpec([None, None], tf.int32)).structured_outputs
        return tf.nest.map_structure(lambda spec: tf.zeros([size or 1 for size in spec.shape], spec.dtype), form)

    def num_traces(self) -> int:
        """Returns the number of traces so far."""
        return sum(compiled.experimental_get_tracing_count() for compiled in self._compiled.values())

    def _compile(self, kind: Sequence[str], scored: bool, only_best: bool) -> Any:
        def search(source_ids: tf.Tensor, *options: tf.Tensor) -> SearchResult:
            arguments = dict(zip([OPTIONS[name] for name in kind], options, strict=True))
            return self._search(source_ids, scored, 1 if only_best else None, arguments)

        shapes = [[None] * rank for rank in (2, *(RANKS[OPTIONS[name]] for name in kind))]
        signature = [tf.TensorSpec(shape, tf.int32) for shape in shapes]
        return tf.function(search, input_signature=signature, autograph=False)

    def _search(
        self,
        source_ids: tf.Tensor,
        scored: bool,
        num_best: int | tf.Tensor | None,
        options: dict[str, tf.Tensor],
        seeds: tf.Tensor | None = None,
    ) -> SearchResult:
        config, goal = self._config, self._goal(source_ids, num_best, scored, **options)
        search = self._start_search(source_ids, self._model.encode(source_ids))
        if config.sampling:
            keys = sentence_keys(config.seed if seeds is None else seeds, source_ids)
            return sample(search.step, search.cache, goal, keys)
        return beam_search(search.step, search.cache, goal)

    def _start_search(self, source_ids: tf.Tensor, memory: Any) -> Search:
        search = self._model.start_search(source_ids, memory, self._config.beam_size, capabilities=self._capabilities)
        return search._replace(step=HoistedWeights().wrap(search.step))

    def _goal(
        self, source_ids: tf.Tensor, num_best: int | tf.Tensor | None, scored: bool = True, **options: tf.Tensor
    ) -> Goal:
        min_lengths, max_lengths, prefixes = self._lengths_and_prefixes(source_ids, options.pop("prefixes", None))
        return Goal(
            self._config,
            max_lengths,
            min_lengths,
            ends_at_minimum=self._form is not None,
            rules=tuple(self._rules),
            continuations=self._continuations,
            num_best=num_best,
            scored=scored,
            prefixes=prefixes,
            **options,
        )

    def _lengths_and_prefixes(
        self, source_ids: tf.Tensor, prefixes: tf.Tensor | None
    ) -> tuple[tf.Tensor | None, tf.Tensor, tf.Tensor | None]:
        """Returns the lengths and prefixes that restrict each output.

        These are the minimum numbers of tokens before the end symbol (None for the configured one), the maximum numbers
        with it, and the prefixes.
        """
        if self._form:
            layout = self._form.layout(source_ids)
            return layout.lengths, layout.lengths + 1, layout.prefixes(prefixes)
        lengths = tf.math.count_nonzero(source_ids != PAD_ID, axis=1, dtype=tf.int32)
        return None, output_limits(lengths, self._config), prefixes


def padded_phrases(rows: Sequence[Sequence[Sequence[int]]], at_front: bool = False) -> np.ndarray:
    """Pads the phrases of sentences with zeros: int32 [batch, phrases, phrase_len], where both lengths are at least 1.

    Each phrase is padded at the end or, with `at_front`, at the front.
    """
    flat = padded([[PAD_ID], *(phrase[::-1] if at_front else phrase for row in rows for phrase in row)])
    return _split_rows(flat[1:, ::-1] if at_front else flat[1:], rows)


def padded_constraints(rows: Sequence[Sequence[Sequence[Sequence[int]]]]) -> np.ndarray:
    """Pads the constraints of sentences, lists of phrases, to int32 [batch, constraints, phrases, phrase_len]."""
    return _split_rows(padded_phrases([phrases for row in rows for phrases in row]), rows)


def _split_rows(flat: np.ndarray, rows: Sequence[Sequence[Any]]) -> np.ndarray:
    """Splits [all, ...] into rows with the lengths of `rows`, padded at the end: int32 [rows, longest, ...]."""
    array = np.full((len(rows), max([1, *map(len, rows)]), *flat.shape[1:]), PAD_ID, np.int32)
    place = 0
    for index, row in enumerate(rows):
        array[index, : len(row)] = flat[place : place + len(row)]
        place += len(row)
    return array
