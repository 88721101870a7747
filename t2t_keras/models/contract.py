"""Everything that training, search, ensembles and export may use of a model."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from keras import ops

from t2t_keras.config import ModelConfig
from t2t_keras.errors import InputError
from t2t_keras.tensor import Tensor

Nest = Any  # of tensors: tuples and named tuples

ATTENTION = "attention"  # it implements `AttentionViews`
COVERAGE = "coverage"  # its steps can sum the attention to the source
BFLOAT16 = "bfloat16"  # its steps can compute products in bfloat16


class Cache(NamedTuple):
    """What a step function reads and writes, grouped by how the search treats it; the search does not look inside.

    Attributes:
        position: int32 scalar, number of tokens before this one.
        per_hypothesis: nest of tensors [batch, beam, ...], reordered with the hypotheses; an axis of length 0 may grow.
        per_sentence: nest of tensors [batch, ...], written by the steps, never reordered; an axis of length 0 may grow.
        source: nest of tensors [batch, ...], computed once per sentence.
        coverage: float32 [batch, beam, source_len], attention to each source token summed over the steps, 1 on padding
            from the start, reordered with the hypotheses; source_len is 0 without coverage.
    """

    position: Tensor
    per_hypothesis: Nest
    per_sentence: Nest
    source: Nest
    coverage: Tensor


# (newest token of every hypothesis, int32 [batch * beam], a sentence's hypotheses next to each other; cache) -->
# (logits, float [batch * beam, vocab]; cache of the next step). The first token is 0.
StepFunction = Callable[[Tensor, Cache], tuple[Tensor, Cache]]


def first_coverage(source: Tensor, beam_size: int, wanted: frozenset[str] = frozenset()) -> Tensor:
    """The coverage before the first step, float32 [batch, beam, source_len]: 1 on padding, else 0. Its source_len is 0
    unless `COVERAGE` is wanted.
    """
    source = source if COVERAGE in wanted else source[:, :0]
    hidden = ops.cast(ops.equal(source, 0), "float32")[:, None]  # --> [batch, 1, source_len]
    return ops.repeat(hidden, beam_size, axis=1)  # --> [batch, beam, source_len]


class Search(NamedTuple):
    """A model that is ready to search.

    Attributes:
        step: the step function.
        cache: the cache of the first step.
    """

    step: StepFunction
    cache: Cache


class StepModel(Protocol):
    """What a search needs of a model.

    `offers` names its optional abilities, `ATTENTION`, `COVERAGE` and `BFLOAT16`; check it before using one.
    """

    @property
    def offers(self) -> frozenset[str]: ...

    def encode(self, source: Tensor) -> Nest:
        """The memory of a source, int [batch, source_len], padded with 0."""

    def begin(self, source: Tensor, memory: Nest, beam_size: int, *, wanted: frozenset[str] = frozenset()) -> Search:
        """Prepares a search.

        Beside the weights, the step function reads nothing but its cache and the number `source_len`: a search may be
        entered again with the cache of another call's steps.

        Args:
            source: int [batch, source_len], padded with 0.
            memory: from `encode`.
            beam_size: hypotheses per sentence.
            wanted: which of the offered `COVERAGE` and `BFLOAT16` the steps must use.
        """


class States(NamedTuple):
    """What a model computes for whole targets, before the projection to the vocabulary.

    Attributes:
        hidden: float [batch, target_len, width], as wide as the output head's table; an ensemble has one such tensor
            per member.
        auxiliary_loss: scalar that training adds to the sum of the token losses; itself a sum over the call's target
            tokens (0 without any), so that it does not depend on how a batch is divided. 0 for most models.
    """

    hidden: Nest
    auxiliary_loss: Tensor


class OutputHead(Protocol):
    """The projection to the vocabulary.

    Attributes:
        table: a trainable variable, float32 [vocab, width], which a fused loss reads.
        bias: likewise, float32 [vocab], or None.
    """

    table: Any
    bias: Any | None

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden @ table^T + bias: float [..., width] --> float32 [..., vocab]."""


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
        """The hidden states of whole targets; those at a position predict the token there.

        Args:
            inputs: "source", int [batch, source_len], and "target", int [batch, target_len], padded with 0.
            seed: int32 [2], for all dropout inside.
            training: whether dropout is active.
            skip_padding: whether rows of padding may be left out, which makes shapes depend on the data.
        """

    def logits(self, hidden: Nest) -> Tensor:
        """Logits, float32 [..., vocab], of some positions of `States.hidden`, [..., width]."""


class SearchedModel(StepModel, ScoringModel, Protocol):
    """What a translator needs of a model. An ensemble implements it too, and needs it of its members."""


class Attentions(NamedTuple):
    """The attention weights of whole targets, float32; self-attention that a model does not have has 0 layers.

    A row is a query and adds up to 1. Row t of a target is of the pass that predicts target t, whose newest input is
    target t - 1.

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
        """Those of a model without self-attention."""
        batch, _, _, target_len, source_len = ops.shape(cross)
        encoder, decoder = (ops.zeros((batch, 0, 0, length, length), "float32") for length in (source_len, target_len))
        return cls(encoder, decoder, cross)


class AttentionViews(Protocol):
    """What a model that offers `ATTENTION` can do; the inputs are those of `ScoringModel.states`."""

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        """Logits without dropout, float32 [batch, target_len, vocab], and the attention weights behind them."""

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """The attention that best tells each target token's source: float32 [batch, target_len, source_len]."""


def attention_views(model: StepModel) -> AttentionViews:
    """Returns the model as one whose attention can be seen; raises InputError if it does not offer `ATTENTION`."""
    if ATTENTION not in model.offers:
        raise InputError(f"the model ({type(model).__name__}) has no attention to show or to align words by")
    return cast(AttentionViews, model)


class SequenceModel(SearchedModel, Protocol):
    """What a family of models implements: a `keras.Model` that can be trained, searched, exported and planned.

    Its call returns the logits of `states`. All its weights are trainable, have paths of their own and exist after
    `build()`. Training does not use Keras's own losses (regularisers, `add_loss`): see `States.auxiliary_loss`.
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
