"""The goal of a search: its decoding settings, and each sentence's limits and restrictions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.restrictions.rules import Rule
from t2t_keras.search.scoring import normalised_score


@dataclasses.dataclass(frozen=True, eq=False)
class Goal:
    """The goal of one search.

    Disabled options add no operations to the graph. Tracing fixes every field that is not a tensor.

    Attributes:
        settings: the decoding settings.
        max_lengths: int32 [batch], maximum number of output tokens, end symbol included; 0 skips a sentence, whose
            output is then empty, with score 0.
        min_lengths: int32 [batch], number of tokens required before the end symbol; None means `settings.min_length`.
            A sentence whose minimum is not below its maximum has no finished hypotheses.
        rules: rules that bar tokens; see `restrictions.rules`.
        prefixes: int32 [batch, prefix_len], the tokens that each output begins with, padded with zeros at the end. A
            zero before the last token leaves its position free. The log-probabilities of prefixes count. Rules and the
            minimum length do not apply to the given tokens.
        constraints: int32 [batch, constraints, phrases, phrase_len], alternative phrases of each constraint, padded
            with zeros at the end. An output must contain a phrase of each constraint. A constraint of zeros is padding.
        excluded: int32 [batch, phrases, phrase_len], phrases that no output may contain, padded with zeros at the
            front.
        continuations: tokens that continue a word. If one follows a phrase, the phrase does not meet its constraint; an
            excluded phrase is barred regardless of the token after it.
        num_best: number of hypotheses to return, an int or an int32 scalar; a sentence is done once they are settled.
            None means all.
        scored: whether scores and log-probabilities are needed. Without them, a greedy search that is restricted only
            in length is faster and returns NaN; all other searches compute them anyway.
        ends_at_minimum: whether an output ends as soon as it has the required number of tokens.

    Raises:
        ValueError: `num_best` is not between 1 and the beam size, or constraints are combined with groups or sampling.
    """

    settings: DecodeConfig
    max_lengths: Any
    min_lengths: Any = None
    rules: tuple[Rule, ...] = ()
    prefixes: Any = None
    constraints: Any = None
    excluded: Any = None
    continuations: Sequence[int] = ()
    num_best: Any = None
    scored: bool = True
    ends_at_minimum: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.num_best, int) and not 1 <= self.num_best <= self.settings.beam_size:
            raise ValueError(f"num_best must be between 1 and beam_size={self.settings.beam_size}, got {self.num_best}")
        if self.constraints is not None and self.settings.num_groups > 1:
            raise ValueError(f"constraints cannot be combined with num_groups={self.settings.num_groups}")
        if self.constraints is not None and self.settings.sampling:
            raise ValueError("constraints cannot be combined with sampling: only a beam search can meet constraints")

    def with_tensors(self) -> "Goal":
        """Returns this goal with `max_lengths` and `min_lengths` as int32 tensors [batch]."""
        max_lengths = tf.cast(tf.convert_to_tensor(self.max_lengths), tf.int32)
        minimum = self.settings.min_length if self.min_lengths is None else self.min_lengths
        min_lengths = tf.broadcast_to(tf.cast(minimum, tf.int32), tf.shape(max_lengths))
        return dataclasses.replace(self, max_lengths=max_lengths, min_lengths=min_lengths)

    @property
    def num_returned(self) -> Any:
        """Number of hypotheses to return, an int or an int32 scalar."""
        return self.settings.beam_size if self.num_best is None else self.num_best

    @property
    def needs_texts(self) -> bool:
        """Whether the search must keep the tokens of every active hypothesis."""
        return bool(self.rules) or self.constraints is not None or self.excluded is not None

    @property
    def restricts(self) -> bool:
        """Whether anything besides log-probabilities and length limits affects the choice of tokens."""
        return self.needs_texts or self.ends_at_minimum or self.prefixes is not None or self.settings.num_groups > 1

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Returns the scores of hypotheses; see `scoring.normalised_score`."""
        return normalised_score(log_probs, lengths, self.settings.length_penalty, self.settings.length_normalization)
