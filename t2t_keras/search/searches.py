"""A model's searches: the plain one, and one for each kind of request."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import BFLOAT16, COVERAGE, StepModel
from t2t_keras.search.batches import padded
from t2t_keras.search.beam_search import SearchResult, beam_search
from t2t_keras.search.engines import Engine, Plain, TensorFlowEngine
from t2t_keras.search.goal import Goal
from t2t_keras.search.random_numbers import sentence_keys
from t2t_keras.search.restrictions.rules import ExcludedPhrases, NoRepeatNgram, Rule
from t2t_keras.search.sampling import sample
from t2t_keras.symbols import PAD_ID

# What a search may be given beside the sources, and the axes of each.
_RANKS = {"prefix": 2, "constraints": 3, "excluded": 3}
_OPTIONS = {"prefix": "prefixes", "constraints": "constraints", "excluded": "excluded"}


def output_limits(source_lengths: Any, config: DecodeConfig) -> tf.Tensor:
    """Most tokens of translations: as many words as the source has, times the factor, and the offset.

    Args:
        source_lengths: int32 [batch], end symbols included.
        config: of the search.

    Returns:
        int32 [batch], end symbols included.
    """
    scaled = tf.math.ceil(config.max_length_factor * tf.cast(source_lengths, tf.float32))
    return tf.cast(scaled, tf.int32) + config.max_length_offset


def wanted(config: DecodeConfig) -> frozenset[str]:
    """What a search wants of what models may offer."""
    asked = {COVERAGE: config.coverage_penalty > 0, BFLOAT16: config.bfloat16}
    return frozenset(name for name, is_asked in asked.items() if is_asked)


class Searches:
    """The searches of one model with one configuration.

    Each is traced once, when it is first used, and serves every batch; a batch that asks for nothing
    special runs a graph that knows of nothing special, or what the model has in its place.

    Args:
        model: what predicts.
        config: what is searched for, and how.
        excluded: token sequences that no output contains.
        engine: what runs them.

    Raises:
        InputError: the configuration asks for what the model does not offer.
    """

    def __init__(
        self,
        model: StepModel,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        engine: Engine | None = None,
    ) -> None:
        self._model, self._config, self._engine = model, config, engine or TensorFlowEngine()
        self._wanted = wanted(config)
        if missing := self._wanted - model.offers:
            names = {COVERAGE: "decode.coverage_penalty", BFLOAT16: "decode.bfloat16"}
            asked = ", ".join(names[name] for name in sorted(missing))
            raise InputError(f"{asked}: the model does not offer {' and '.join(sorted(missing))}; leave it out")
        self._rules: list[Rule] = []
        if config.no_repeat_ngram_size:
            self._rules.append(NoRepeatNgram(config.no_repeat_ngram_size))
        if excluded:
            self._rules.append(ExcludedPhrases(excluded))
        self._has_options = bool(config.sampling or config.coverage_penalty or config.num_groups > 1 or self._rules)
        # All there can be, untraced: threads that want the same one share it.
        kinds = itertools.chain.from_iterable(itertools.combinations(_RANKS, count) for count in range(len(_RANKS) + 1))
        variants = [(kind, True) for kind in kinds] + [((), False)]
        self._compiled = {
            (frozenset(kind), scored, only_best): self._compile(kind, scored, only_best)
            for (kind, scored), only_best in itertools.product(variants, (False, True))
        }

    def __call__(self, source_ids: Any, only_best: bool = False, scored: bool = True, **asked: Any) -> SearchResult:
        """Searches, or draws samples.

        Args:
            source_ids: int32 [batch, source_len], each sentence with its end symbol, then padding.
            only_best: whether one hypothesis a sentence is enough: the search then ends as soon as it is settled.
            scored: whether scores are wanted; else those of a greedy search without options are NaN, and it is faster.
            asked: any of "prefix", int32 [batch, prefix_len], "constraints" and "excluded", int32 [batch,
                phrases, phrase_len]; see `Goal`.

        Returns:
            One or `config.beam_size` hypotheses a sentence, best first, or samples in the order of their drawing.
        """
        is_plain = not asked and not self._has_options
        always_scored = self._config.beam_size > 1 or not is_plain  # and not traced twice
        kind = frozenset(asked), scored or always_scored, only_best and not self._config.sampling

        def in_graph() -> SearchResult:
            return self._compiled[kind](source_ids, *(asked[name] for name in _RANKS if name in asked))

        if not is_plain:
            return self._engine.search(in_graph)
        plain = Plain(self._config, 1 if only_best else None, scored)
        return self._engine.plain_search(source_ids, plain, in_graph)

    def sample(self, source_ids: tf.Tensor, seeds: tf.Tensor) -> SearchResult:
        """Draws samples with a seed for each sentence, not compiled: for a graph that somebody else traces.

        Args:
            source_ids: as of the call.
            seeds: int64 [batch].

        Raises:
            ValueError: `config.sampling` is off.
        """
        if not self._config.sampling:
            raise ValueError(f"config.sampling must be true for samples, got {self._config.sampling}")
        return self._search(source_ids, True, False, {}, seeds)

    def num_traces(self) -> int:
        """How often a graph has been traced."""
        return sum(compiled.experimental_get_tracing_count() for compiled in self._compiled.values())

    def _compile(self, kind: Sequence[str], scored: bool, only_best: bool) -> Any:
        def search(source_ids: tf.Tensor, *asked: tf.Tensor) -> SearchResult:
            return self._search(
                source_ids, scored, only_best, dict(zip([_OPTIONS[name] for name in kind], asked, strict=True))
            )

        shapes = [[None] * rank for rank in (2, *(_RANKS[name] for name in kind))]
        signature = [tf.TensorSpec(shape, tf.int32) for shape in shapes]
        return tf.function(search, input_signature=signature, autograph=False)

    def _search(
        self,
        source_ids: tf.Tensor,
        scored: bool,
        only_best: bool,
        asked: dict[str, tf.Tensor],
        seeds: tf.Tensor | None = None,
    ) -> SearchResult:
        config = self._config
        goal = Goal(
            config,
            output_limits(tf.math.count_nonzero(source_ids != PAD_ID, axis=1, dtype=tf.int32), config),
            rules=tuple(self._rules),
            num_best=1 if only_best else None,
            scored=scored,
            **asked,
        )
        search = self._model.begin(source_ids, self._model.encode(source_ids), config.beam_size, wanted=self._wanted)
        if config.sampling:
            keys = sentence_keys(config.seed if seeds is None else seeds, source_ids)
            found = sample(search.step, search.cache, goal, keys)
        else:
            found = beam_search(search.step, search.cache, goal)
        with tf.control_dependencies(found):
            search.end()
        return found


def padded_phrases(rows: Sequence[Sequence[Sequence[int]]], at_front: bool = False) -> np.ndarray:
    """Phrases of sentences as one int32 array [batch, phrases, phrase_len], at least one phrase of one token wide.

    Args:
        rows: the phrases of each sentence.
        at_front: whether zeros stand before each phrase, not behind it.
    """
    flat = padded([[PAD_ID], *(phrase[::-1] if at_front else phrase for row in rows for phrase in row)])
    flat = flat[:, ::-1] if at_front else flat
    array = np.full((len(rows), max([1, *map(len, rows)]), flat.shape[1]), PAD_ID, np.int32)
    place = 1
    for index, row in enumerate(rows):
        array[index, : len(row)] = flat[place : place + len(row)]
        place += len(row)
    return array
