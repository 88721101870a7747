"""What training, search, ensembles and export know of a model: nothing else of it may be used.

A search asks a model for a step function and the cache that it starts from. It reorders and leaves out what the cache
says may be reordered and left out, and hands it back at each step, without knowing what is in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from keras import ops

from t2t_keras.config import ModelConfig
from t2t_keras.errors import InputError

Tensor = Any
Nest = Any  # of tensors: tuples and named tuples

ATTENTION = "attention"  # has `AttentionViews`
COVERAGE = "coverage"  # its steps add up the attention to the source
BFLOAT16 = "bfloat16"  # its steps can compute products in bfloat16
LITE = "lite"  # is of `AttentionStacks`, which TensorFlow Lite can compute


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
        offers: what else it can do: `ATTENTION`, `COVERAGE`, `BFLOAT16`, `LITE`. Asked for before it is used.
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


class States(NamedTuple):
    """What a model makes of whole targets, before the projection to the vocabulary.

    Attributes:
        hidden: float [batch, target_len, d_model]; of an ensemble one such tensor for each member.
        auxiliary_loss: float32 scalar that training adds to the sum of the token losses; 0 for most models.
    """

    hidden: Nest
    auxiliary_loss: Tensor


class OutputHead(Protocol):
    """The projection to the vocabulary, whose weights a fused loss takes.

    Attributes:
        table: a trainable variable, float32 [vocab, d_model].
        bias: likewise, float32 [vocab]; None if the head has none.
    """

    table: Any
    bias: Any | None

    def logits(self, hidden: Tensor) -> Tensor:
        """float [..., d_model] to hidden times the table transposed, plus the bias: float32 [..., vocab]."""
        ...


class ScoringModel(Protocol):
    """What forced decoding needs of a model."""

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool = False,
        skip_padding: bool = False,
    ) -> States:
        """The states of whole targets; those at a position predict the token there.

        Args:
            inputs: "source", int [batch, source_len], and "target", int [batch, target_len], padded with 0.
            seed: int32 [2], of all dropout within.
            training: whether dropout is active.
            skip_padding: whether rows of padding may be left out of the computation, which makes shapes depend on
                the data.
        """
        ...

    def logits(self, hidden: Nest) -> Tensor:
        """Logits, float32 [..., vocab], of some positions of `States.hidden`, [..., d_model]."""
        ...


class SearchedModel(StepModel, ScoringModel, Protocol):
    """What a translator needs of a model, and an ensemble of its members."""


class AttentionViews(Protocol):
    """What a model that offers `ATTENTION` has."""

    def logits_and_cross_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits, float32 [batch, target_len, vocab], and attention to the source, float32 [batch, layers, heads,
        target_len, source_len]; the inputs are those of `ScoringModel.states`.
        """
        ...

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """The attention that says best which source token each target token comes from: float32 [batch, target_len,
        source_len].
        """
        ...


class AttentionStacks(SearchedModel, Protocol):
    """What a model that offers `LITE` is made of.

    Attributes:
        source_embedding: `layers.TiedEmbedding` of source tokens.
        target_embedding: of target tokens.
        source_positions: the layer that adds positions to sources.
        target_positions: that of targets.
        encoder: `layers.Encoder`.
        decoder: `layers.Decoder`.
        output_head: `layers.TiedEmbedding`.
    """

    config: ModelConfig
    source_embedding: Any
    target_embedding: Any
    source_positions: Any
    target_positions: Any
    encoder: Any
    decoder: Any

    @property
    def output_head(self) -> Any: ...

    @property
    def compute_dtype(self) -> str: ...


def attention_views(model: StepModel) -> AttentionViews:
    """The model as one whose attention can be seen.

    Raises:
        InputError: it does not offer that.
    """
    if ATTENTION not in model.offers:
        raise InputError(f"the model ({type(model).__name__}) has no attention to show or to align words by")
    return cast(AttentionViews, model)


class SequenceModel(SearchedModel, Protocol):
    """What a family of models is: a `keras.Model` that can be trained, searched, exported and planned.

    Its call gives the logits of `states`. All its weights are trainable and are there after `build()`.

    Attributes:
        config: its settings; see `t2t_keras.config.ModelConfig`.
        output_head: what turns `States.hidden` into logits.
    """

    config: ModelConfig

    @property
    def output_head(self) -> OutputHead: ...

    @property
    def trainable_variables(self) -> list[Any]: ...

    @property
    def compute_dtype(self) -> str: ...

    def build(self, input_shape: Any = None) -> None: ...
