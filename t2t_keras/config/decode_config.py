"""Settings of decoding."""

import dataclasses
from typing import Any, Literal

from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share, check_fields

EngineName = Literal["tensorflow", "ctranslate2"]  # the implementation of the search
ComputeType = Literal["float32", "int8", "bfloat16"]  # of CTranslate2's matrix products


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Settings of decoding (section 6.1 of the paper).

    Attributes:
        beam_size: number of hypotheses per sentence; 1 is greedy search.
        length_penalty: alpha of GNMT's length penalty ((5 + length) / 6) ** alpha; 0 means none.
        min_length: minimum number of output tokens before the end symbol.
        max_length_offset: output tokens allowed beyond max_length_factor times the source length, end symbols included.
        max_length_factor: factor on the source length in the output limit; see max_length_offset.
        patience: 0 searches until no better hypothesis can be found; otherwise a sentence also ends once patience *
            beam_size hypotheses have finished (Kasai et al., 2024); with groups, this applies to each group and its
            share of the beam.
        ends_within_beam: whether a hypothesis can end only if its end symbol is among the beam_size best continuations,
            as in fairseq, CTranslate2 and Hugging Face's transformers; otherwise twice as many are considered.
        tokens_per_batch: token budget of a decoding batch: number of sentences times source length.
        length_normalization: divisor that turns a log-probability into a score: "gnmt" (the length penalty), "average"
            (the length) or "none".
        coverage_penalty: beta of GNMT's coverage penalty; 0 means none.
        no_repeat_ngram_size: length of the token n-grams that may occur at most once; 0 allows all repetitions.
        num_groups: groups of a diverse beam search (Vijayakumar et al., 2018); 1 means an ordinary search.
        diversity_strength: penalty on a token's log-probability for each hypothesis of an earlier group that chose the
            token at the same step.
        sampling: whether to draw beam_size samples instead of searching.
        temperature: divisor of the logits in sampling.
        top_k: sample only from this many most probable tokens; 0 means all.
        top_p: sample only from the smallest set of most probable tokens whose total probability reaches this value; 1
            means all.
        seed: random seed of sampling; a sentence's samples are a function of this seed and the sentence.
        split: unit of translation: "sentences", which are detected in each text and whose translations are joined by
            the white space between them, or "lines", each as a whole; used only by the translation task.
        tag: symbol such as "<2fr>" in front of each source that does not begin with a symbol; empty for none.
        case: treatment of sentences in capitals or in title case: "exact" translates them as they are; "fallback"
            translates their ordinary form if the vocabulary spells it with clearly fewer tokens, and returns the
            translation in the case of the source; used only by the translation task.
        protect: spans that a translation repeats unchanged: kinds ("urls", "emails", "numbers", "files"), several of
            them separated by commas, or regular expressions; "nothing" also stops the protection of characters that the
            training text never had; used only by the translation task.
        bfloat16: whether search steps multiply with the weights in bfloat16: faster for large models if the processor
            supports it, but scores change in their third digit.
    """

    beam_size: PositiveInt = 4
    length_penalty: NonNegativeFloat = 0.6
    min_length: NonNegativeInt = 0
    max_length_offset: PositiveInt = 50
    max_length_factor: NonNegativeFloat = 1.0
    patience: NonNegativeFloat = 0.0
    ends_within_beam: bool = False
    tokens_per_batch: PositiveInt = 4096
    length_normalization: Literal["gnmt", "average", "none"] = "gnmt"
    coverage_penalty: NonNegativeFloat = 0.0
    no_repeat_ngram_size: NonNegativeInt = 0
    num_groups: PositiveInt = 1
    diversity_strength: NonNegativeFloat = 0.0
    sampling: bool = False
    temperature: PositiveFloat = 1.0
    top_k: NonNegativeInt = 0
    top_p: Share = 1.0
    seed: int = 1
    split: Literal["sentences", "lines"] = "sentences"
    tag: str = ""
    case: Literal["exact", "fallback"] = "exact"
    protect: tuple[str, ...] = ()
    bfloat16: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "decode.{}")
        if self.beam_size % self.num_groups:
            raise InputError(
                f"decode.beam_size={self.beam_size} must be a multiple of decode.num_groups={self.num_groups}"
            )
        if self.diversity_strength and self.num_groups == 1:
            raise InputError(f"decode.diversity_strength={self.diversity_strength} needs decode.num_groups above 1")
        for name, off in (("num_groups", 1), ("coverage_penalty", 0), ("patience", 0)):
            if self.sampling and getattr(self, name) != off:
                raise InputError(f"decode.{name}={getattr(self, name)} cannot be combined with decode.sampling=true")
        for name, off in (("temperature", 1), ("top_k", 0), ("top_p", 1)):
            if not self.sampling and getattr(self, name) != off:
                raise InputError(f"decode.{name}={getattr(self, name)} needs decode.sampling=true")

    @property
    def length_limit(self) -> dict[str, Any]:
        """The settings that limit the output length."""
        names = ("min_length", "max_length_offset", "max_length_factor")
        return {name: getattr(self, name) for name in names}
