"""What a search is to find: the settings of decoding, and what the sentences of a batch ask for."""

import dataclasses
from typing import Any

import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.restrictions.rules import Rule
from t2t_keras.search.scoring import normalised_score


@dataclasses.dataclass(frozen=True, eq=False)
class Goal:
    """The goal of one search. What it does not ask for adds no operation.

    Attributes:
        settings: of the search; checked when they are made. Fixed when a search is traced, as all is but the tensors.
        max_lengths: int32 [batch], most tokens of an output, the end symbol counted; 0 leaves a sentence out (an empty
            result with score 0).
        min_lengths: int32 [batch], tokens of an output before its end symbol; None means `settings.min_length`.
            Where that is not below the largest length, no hypothesis finishes.
        rules: what no output may have; see `rules`.
        prefixes: int32 [batch, prefix_len], what each output begins with, zeros after it (a zero before its
            end leaves that position free). Its log-probability counts. Within it no rule
            applies, nor the minimum length.
        constraints: int32 [batch, phrases, phrase_len], what each output must contain, padded
            with zeros; see `constraints`.
        excluded: int32 [batch, phrases, phrase_len], what each output must not contain, with zeros before
            each phrase; see `rules.excluded_bias`.
        num_best: hypotheses that are returned; a sentence is done as soon as these are settled. None means all.
        scored: whether scores and log-probabilities are wanted. Without them a search with a beam of one and nothing
            but lengths to keep is faster, and they are NaN; any other search needs them.

    Raises:
        ValueError: `num_best` not between 1 and the beam, or constraints for groups or samples.
    """

    settings: DecodeConfig
    max_lengths: Any
    min_lengths: Any = None
    rules: tuple[Rule, ...] = ()
    prefixes: Any = None
    constraints: Any = None
    excluded: Any = None
    num_best: int | None = None
    scored: bool = True

    def __post_init__(self) -> None:
        if self.num_best is not None and not 1 <= self.num_best <= self.settings.beam_size:
            raise ValueError(f"num_best must be between 1 and beam_size={self.settings.beam_size}, got {self.num_best}")
        if self.constraints is not None and self.settings.num_groups > 1:
            raise ValueError(f"constraints do not go together with num_groups={self.settings.num_groups}")
        if self.constraints is not None and self.settings.sampling:
            raise ValueError("constraints do not go together with sampling: only a beam search can keep them")

    def with_tensors(self) -> "Goal":
        """The same with both lengths as int32 tensors [batch]."""
        max_lengths = tf.cast(tf.convert_to_tensor(self.max_lengths), tf.int32)
        minimum = self.settings.min_length if self.min_lengths is None else self.min_lengths
        min_lengths = tf.broadcast_to(tf.cast(minimum, tf.int32), tf.shape(max_lengths))
        return dataclasses.replace(self, max_lengths=max_lengths, min_lengths=min_lengths)

    @property
    def num_returned(self) -> int:
        """Hypotheses that are returned."""
        return self.num_best or self.settings.beam_size

    @property
    def needs_texts(self) -> bool:
        """Whether the search must keep the text of every living hypothesis."""
        return bool(self.rules) or self.constraints is not None or self.excluded is not None

    @property
    def restricts(self) -> bool:
        """Whether tokens are chosen by anything but their log-probability."""
        return self.needs_texts or self.prefixes is not None or self.settings.num_groups > 1

    @property
    def has_own_order(self) -> bool:
        """Whether candidates come in an order of their own, not by log-probability."""
        return self.constraints is not None or self.settings.num_groups > 1

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """What hypotheses of these log-probabilities and lengths are ranked by; see `scoring.normalised_score`."""
        return normalised_score(log_probs, lengths, self.settings.length_penalty, self.settings.length_normalization)
