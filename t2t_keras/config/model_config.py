"""The base class of all model settings, and the registry of model families."""

import abc
import dataclasses
import pkgutil
from typing import ClassVar, NamedTuple, TypeVar, cast

from t2t_keras.errors import InputError
from t2t_keras.values import PositiveInt, check_fields


class Activations(NamedTuple):
    """Number of activations kept for the backward pass, per pair of one source token and one target token.

    Attributes:
        computed: elements in the compute dtype.
        float32: elements in float32, regardless of the compute dtype.
    """

    computed: int
    float32: int


@dataclasses.dataclass(frozen=True)
class ModelConfig(abc.ABC):
    """Settings of a model; each family adds its own fields.

    Attributes:
        vocab_size: number of vocabulary entries, special symbols included; only those of targets if source_vocab_size
            is given.
        d_model: width of the embeddings and of every layer's output.
        source_vocab_size: number of entries of a separate source vocabulary; None means that both sides share one.
    """

    family: ClassVar[str]  # the family's name: "model.family" in a configuration

    vocab_size: PositiveInt = 37000
    d_model: PositiveInt = 512
    source_vocab_size: PositiveInt | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self, "model.{}")

    @property
    def source_entries(self) -> int:
        """Number of entries of the vocabulary that sources use."""
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def entries(self) -> str:
        """The vocabulary sizes as text for a table."""
        source_entries = "" if self.source_vocab_size is None else f", sources {self.source_vocab_size:,}"
        return f"{self.vocab_size:,}{source_entries}"

    def token_rows(self, *, tied: bool) -> int:
        """Number of rows of all token matrices together.

        If `tied`, the target embedding and the projection share one matrix, as does the source embedding unless sources
        have a separate vocabulary.
        """
        shares_all = tied and self.source_vocab_size is None
        return self.vocab_size * (1 if tied else 2) + (0 if shares_all else self.source_entries)

    @abc.abstractmethod
    def parameter_counts(self) -> dict[str, int]:
        """Numbers of trainable parameters, by part of the model."""

    @abc.abstractmethod
    def training_flops(self, length: int) -> dict[str, int]:
        """FLOPs of training on one source token and one target token in sentences of `length` tokens, by kind.

        "matrices" counts 6 FLOPs per parameter of the network and the pre-softmax projection: 2 in the forward pass and
        4 in the backward pass. Embedding lookups need none. A family may add other kinds.
        """

    def loop_iterations(self, length: int) -> int:
        """Sequential iterations of loops over time per update, in sentences of `length` tokens; 0 without loops."""
        return 0

    def hidden_scores(self, length: int) -> int:
        """Elements in the hidden layers of additive attention scores, per source token and target token.

        They are not matrix products; their cost is the time to read and write them.
        """
        return 0

    @abc.abstractmethod
    def kept_activations(self, length: int) -> Activations:
        """Activations kept for the backward pass, per source and target token in sentences of `length` tokens.

        Activations that XLA recomputes instead of keeping are included.
        """

    def sizes(self) -> dict[str, str]:
        """The settings that `launch.describe` lists, as text by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: str(value) for name, value in values.items() if name != "source_vocab_size" or value is not None}


_Class = TypeVar("_Class", bound=type[ModelConfig])
# The settings class of each family, or "module:class" until its first use.
_FAMILIES: dict[str, str | type[ModelConfig]] = {
    "bytenet": "t2t_keras.baselines.bytenet.bytenet_config:ByteNetConfig",
    "conv_s2s": "t2t_keras.baselines.conv_s2s.conv_s2s_config:ConvS2SConfig",
    "moe_rnn": "t2t_keras.baselines.recurrent.moe_rnn_config:MoERNNConfig",
    "rnn_attention": "t2t_keras.baselines.recurrent.rnn_attention_config:RNNAttentionConfig",
    "transformer": "t2t_keras.config.transformer_config:TransformerConfig",
}


def register_config(config_class: _Class) -> _Class:
    """Decorator that registers a settings class under its family's name.

    Raises:
        ValueError: the class has no `family`, or a different class is registered under that name.
    """
    if not getattr(config_class, "family", ""):
        raise ValueError(f"{config_class.__name__} must name its family")
    entry = _FAMILIES.get(config_class.family, config_class)
    name = entry if isinstance(entry, str) else _name(entry)
    if name != _name(config_class):
        raise ValueError(f"family {config_class.family!r} is already registered, by {name.partition(':')[0]}")
    _FAMILIES[config_class.family] = config_class
    return config_class


def _name(config_class: type[ModelConfig]) -> str:
    return f"{config_class.__module__}:{config_class.__qualname__}"


def model_config_class(family: str) -> type[ModelConfig]:
    """Returns the settings class of a family; raises InputError with the valid names if the family is unknown."""
    if family not in _FAMILIES:
        raise InputError(
            f"unknown model.family {family!r}; valid: {', '.join(_FAMILIES)}, and the families of --extension modules"
        )
    entry = _FAMILIES[family]
    if isinstance(entry, str):
        entry = _FAMILIES[family] = cast(type[ModelConfig], pkgutil.resolve_name(entry))
    return entry
