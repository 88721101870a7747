"""What search, ensembles and the programs know of a model: nothing else of it may be used.

A search asks a model for a step function and the cache that it starts from. It reorders and leaves out what the cache
says may be reordered and left out, and hands it back at each step, without knowing what is in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from keras import ops

Tensor = Any
Nest = Any  # of tensors: tuples and named tuples

ATTENTION = "attention"  # has `AttentionViews`
COVERAGE = "coverage"  # its steps add up the attention to the source
BFLOAT16 = "bfloat16"  # its steps can compute products in bfloat16


class Cache(NamedTuple):
    """What a step function reads and writes, named by what the search does with it.

    Attributes:
        position: int32 scalar, tokens before this one.
        per_hypothesis: a nest of tensors [batch, beam, ...], reordered as the hypotheses are. An axis of length 0 may
            grow from step to step.
        per_sentence: a nest of tensors [batch, ...], written by the steps and never reordered. An axis of length 0
            may grow from step to step.
        source: a nest of tensors [batch, ...], computed once a sentence.
        coverage: float32 [batch, beam, source_len], the attention to each source token summed over the steps, and 1
            from the start where there is padding; reordered as the hypotheses are. Where coverage is not wanted,
            source_len is 0.
    """

    position: Tensor
    per_hypothesis: Nest
    per_sentence: Nest
    source: Nest
    coverage: Tensor


# From the newest token of every hypothesis, int32 [batch * beam], the beams of a sentence side by side, and the cache
# to logits, float [batch * beam, vocab], and the cache of the next step. The first token is 0.
StepFunction = Callable[[Tensor, Cache], tuple[Tensor, Cache]]


def first_coverage(source: Tensor, beam_size: int) -> Tensor:
    """The coverage before the first step.

    Args:
        source: int [batch, source_len], padded with 0; of no length where coverage is not wanted.
        beam_size: hypotheses a sentence.
    """
    hidden = ops.cast(ops.equal(source, 0), "float32")[:, None]  # --> [batch, 1, source_len]
    return ops.repeat(hidden, beam_size, axis=1)  # --> [batch, beam, source_len]


def nothing() -> None:
    """What most searches need at their end."""


class Search(NamedTuple):
    """A model that is ready to search.

    Attributes:
        step: the step function.
        cache: that of the first step.
        end: called once the search has found what it gives back, in the same graph.
    """

    step: StepFunction
    cache: Cache
    end: Callable[[], Any] = nothing


class StepModel(Protocol):
    """What a search needs of a model.

    Attributes:
        offers: what else it can do: `ATTENTION`, `COVERAGE`, `BFLOAT16`. Asked for before it is used.
    """

    @property
    def offers(self) -> frozenset[str]: ...

    def encode(self, source: Tensor) -> Nest:
        """The memory of a source, int [batch, source_len], padded with 0."""
        ...

    def begin(self, source: Tensor, memory: Nest, beam_size: int, *, wanted: frozenset[str] = frozenset()) -> Search:
        """Makes a search ready.

        Args:
            source: int [batch, source_len], padded with 0.
            memory: of `encode`.
            beam_size: hypotheses a sentence.
            wanted: what the steps shall do of what the model offers: `COVERAGE`, `BFLOAT16`.
        """
        ...
