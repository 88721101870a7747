"""What a search may be asked for beyond its size; nothing here costs anything when it is not asked for."""

import dataclasses

import tensorflow as tf

from t2t_keras.decoding.rules import Rule
from t2t_keras.decoding.scoring import LENGTH_NORMALIZATIONS


@dataclasses.dataclass(frozen=True, eq=False)
class SearchOptions:
    """The options of `beam_search` and, some of them, of `sample`.

    All but the tensors are fixed when a search is traced.

    Attributes:
        length_normalization: what a log-probability is divided by to make a score: "gnmt" (the length
            penalty), "average" (the length) or "none".
        coverage_penalty: beta of `scoring.coverage_score`; when positive, the cache's "hypotheses"
            must be a dict with "coverage", float [batch, beam, source_len], to which the step function adds
            the attention of each step, and which is at least 1 from the start where there is padding.
        rules: what the output may not have; see `rules`.
        prefixes: int32 [batch, prefix_len], what each output begins with, zeros after it (a zero before its
            end leaves that position free). Its log-probability counts. Within it no rule
            applies, nor the minimum length.
        constraints: int32 [batch, phrases, phrase_len], what each output must contain, padded
            with zeros; see `constraints`.
        excluded: int32 [batch, phrases, phrase_len], what each output must not contain, with zeros before
            each phrase; see `rules.excluded_bias`.
        num_groups: groups of a diverse beam search, which share the beam evenly; 1 is no such search.
        diversity_strength: what a token's log-probability is lowered by for each hypothesis of an
            earlier group that took it at the same step.

    Raises:
        ValueError: a value that is out of range, or two options that exclude each other.

    Reference:
        Vijayakumar et al. 2018, "Diverse Beam Search", for groups.
    """

    length_normalization: str = "gnmt"
    coverage_penalty: float = 0.0
    rules: tuple[Rule, ...] = ()
    prefixes: tf.Tensor | None = None
    constraints: tf.Tensor | None = None
    excluded: tf.Tensor | None = None
    num_groups: int = 1
    diversity_strength: float = 0.0

    def __post_init__(self) -> None:
        if self.length_normalization not in LENGTH_NORMALIZATIONS:
            valid = ", ".join(LENGTH_NORMALIZATIONS)
            raise ValueError(f"length_normalization must be one of {valid}; got {self.length_normalization!r}")
        for name in ("coverage_penalty", "diversity_strength"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.num_groups < 1:
            raise ValueError(f"num_groups must be positive, got {self.num_groups}")
        if self.diversity_strength and self.num_groups == 1:
            raise ValueError(f"diversity_strength={self.diversity_strength} needs num_groups above 1")
        if self.constraints is not None and self.num_groups > 1:
            raise ValueError(f"constraints do not go together with num_groups={self.num_groups}")

    @property
    def needs_texts(self) -> bool:
        """Whether the search must keep the text of every living hypothesis."""
        return bool(self.rules) or self.constraints is not None or self.excluded is not None

    @property
    def restricts(self) -> bool:
        """Whether tokens are chosen by anything but their log-probability."""
        return self.needs_texts or self.prefixes is not None or self.num_groups > 1

    @property
    def has_own_order(self) -> bool:
        """Whether the candidates that live on are others than those with the best log-probabilities."""
        return self.num_groups > 1 or self.constraints is not None
