"""The interfaces through which training, search, ensembles and export use a model."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from keras import ops

from t2t_keras.config import ModelConfig
from t2t_keras.errors import InputError
from t2t_keras.tensor import Tensor

Nest = Any  # of tensors: tuples and named tuples

ATTENTION = "attention"  # the model implements `AttentionViews`
COVERAGE = "coverage"  # its search steps can sum the attention to the source
BFLOAT16 = "bfloat16"  # its search steps can compute products in bfloat16


class Cache(NamedTuple):
    """The state that a step function reads and writes, grouped by how the search treats it.

    The search does not look inside the nests. An axis of `per_hypothesis` or `per_sentence` that has length 0 at the
    start may grow.

    Attributes:
        position: int32 scalar, number of tokens before the current one.
        per_hypothesis: nest of tensors [batch, beam, ...], reordered with the hypotheses.
        per_sentence: nest of tensors [batch, ...], written by the steps and never reordered.
        source: nest of tensors [batch, ...], computed once per sentence.
        coverage: float32 [batch, beam, source_len], attention to each source token summed over the steps, reordered
            with the hypotheses. It starts at 1 on padding and at 0 elsewhere. Without coverage, source_len is 0.
    """

    position: Tensor
    per_hypothesis: Nest
    per_sentence: Nest
    source: Nest
    coverage: Tensor


# (newest token of each hypothesis, int32 [batch * beam], where the hypotheses of a sentence are adjacent; cache) -->
# (logits, float [batch * beam, vocab]; cache of the next step). The first token is 0.
StepFunction = Callable[[Tensor, Cache], tuple[Tensor, Cache]]


def initial_coverage(source: Tensor, beam_size: int, capabilities: frozenset[str] = frozenset()) -> Tensor:
    """The coverage before the first step, float32 [batch, beam, source_len]: 1 on padding, else 0.

    Without `COVERAGE` among the capabilities, source_len is 0.
    """
    source = source if COVERAGE in capabilities else source[:, :0]
    hidden = ops.cast(ops.equal(source, 0), "float32")[:, None]  # --> [batch, 1, source_len]
    return ops.repeat(hidden, beam_size, axis=1)  # --> [batch, beam, source_len]


class Search(NamedTuple):
    """A search that a model has prepared.

    Attributes:
        step: the step function.
        cache: the cache for the first step.
    """

    step: StepFunction
    cache: Cache


class StepModel(Protocol):
    """The interface that a search requires of a model.

    `capabilities` lists the optional features that the model supports: `ATTENTION`, `COVERAGE`, `BFLOAT16`. Check it
    before you use one of them.
    """

    @property
    def capabilities(self) -> frozenset[str]: ...

    def encode(self, source: Tensor) -> Nest:
        """Encodes a source, int [batch, source_len], padded with 0, to its memory."""

    def start_search(
        self, source: Tensor, memory: Nest, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        """Prepares a search.

        Apart from the weights, the step function depends only on its cache and the number `source_len`, so that a
        search can continue with a cache that the steps of an earlier call have returned.

        Args:
            source: int [batch, source_len], padded with 0.
            memory: from `encode`.
            beam_size: hypotheses per sentence.
            capabilities: those that the steps must use: `COVERAGE`, `BFLOAT16`, both or none. The model must have them.
        """


class States(NamedTuple):
    """The hidden states of whole targets, before the projection to the vocabulary, and the auxiliary loss.

    Attributes:
        hidden: float [batch, target_len, width], as wide as the output head's table; an ensemble has one such tensor
            per member.
        auxiliary_loss: scalar that training adds to the sum of the token losses; 0 for most models. It is a sum over
            the target tokens of the call (0 if there are none), so that it does not depend on how a batch is divided.
    """

    hidden: Nest
    auxiliary_loss: Tensor


class OutputHead(Protocol):
    """The projection to the vocabulary.

    Attributes:
        table: a trainable variable, float32 [vocab, width], which a fused loss reads.
        bias: a trainable variable, float32 [vocab], or None.
    """

    table: Any
    bias: Any | None

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden @ table^T + bias: float [..., width] --> float32 [..., vocab]."""


class ScoringModel(Protocol):
    """The interface that forced decoding requires of a model."""

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool = False,
        skip_padding: bool = False,
    ) -> States:
        """Computes the hidden states of whole targets; the state at a position predicts the token at that position.

        Args:
            inputs: "source", int [batch, source_len], and "target", int [batch, target_len], padded with 0.
            seed: int32 [2], for all dropout inside.
            training: whether dropout is active.
            skip_padding: whether rows of padding may be skipped, which makes shapes depend on the data.
        """

    def logits(self, hidden: Nest) -> Tensor:
        """Projects some positions of `States.hidden`, [..., width], to logits, float32 [..., vocab]."""


class SearchedModel(StepModel, ScoringModel, Protocol):
    """The interface that a translator requires of a model. Ensembles implement it, and require it of their members."""


class Attentions(NamedTuple):
    """The attention weights of whole targets, float32. Without self-attention, `encoder` and `decoder` have 0 layers.

    Each row belongs to one query and sums to 1. Row t of a target belongs to the prediction of target t, for which the
    newest input is target t - 1.

    Attributes:
        encoder: the source to itself, [batch, layers, heads, source_len, source_len].
        decoder: the target to itself, [batch, layers, heads, target_len, target_len]; its columns are the decoder's
            inputs: the start symbol, target 0, target 1, ...
        cross: the target to the source, [batch, layers, heads, target_len, source_len]; at least one layer.
    """

    encoder: Tensor
    decoder: Tensor
    cross: Tensor

    @classmethod
    def cross_only(cls, cross: Tensor) -> "Attentions":
        """The attention weights of a model without self-attention."""
        batch, _, _, target_len, source_len = ops.shape(cross)
        encoder, decoder = (ops.zeros((batch, 0, 0, length, length), "float32") for length in (source_len, target_len))
        return cls(encoder, decoder, cross)


class AttentionViews(Protocol):
    """The interface of a model with the capability `ATTENTION`; inputs are as in `ScoringModel.states`."""

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        """Logits without dropout, float32 [batch, target_len, vocab], and the attention weights of this pass."""

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """The attention that best aligns targets with sources: float32 [batch, target_len, source_len]."""


def attention_views(model: StepModel) -> AttentionViews:
    """Returns the model as `AttentionViews`; raises InputError if it lacks the capability `ATTENTION`."""
    if ATTENTION not in model.capabilities:
        raise InputError(
            f"the model ({type(model).__name__}) has no attention, which pictures and word alignments need"
        )
    return cast(AttentionViews, model)


class SequenceModel(SearchedModel, Protocol):
    """The interface of a family of models: a `keras.Model` that can be trained, searched, exported and planned.

    Its call returns the logits of `states`. All its weights are trainable, have distinct paths and exist after
    `build()`. Training ignores Keras's own losses (regularisers and `add_loss`); use `States.auxiliary_loss` instead.
    """

    config: ModelConfig

    @property
    def output_head(self) -> OutputHead: ...

    @property
    def path(self) -> str: ...

    @property
    def trainable_variables(self) -> list[Any]: ...

    @property
    def weights(self) -> list[Any]: ...

    @property
    def compute_dtype(self) -> str: ...

    def build(self, input_shape: Any = None) -> None: ...
