"""What the settings of every family of models have, and the families by name."""

import dataclasses
from typing import ClassVar, NamedTuple, TypeVar

from t2t_keras.config.checks import check_positive
from t2t_keras.errors import InputError


class Activations(NamedTuple):
    """Numbers that a backward pass needs of the forward pass, for one source token and one target token.

    Attributes:
        computed: of the type that is computed in.
        float32: of float32 whatever that type is.
    """

    computed: int
    float32: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The settings of a network; each family has fields of its own.

    Attributes:
        vocab_size: entries of the shared vocabulary, special symbols included.
        d_model: width of the embeddings and of every layer's output.
    """

    family: ClassVar[str]  # its name; "model.family" in a configuration
    section: ClassVar[str] = "model"

    vocab_size: int = 37000
    d_model: int = 512

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "d_model")

    def parameter_counts(self) -> dict[str, int]:
        """Trainable parameters of the model's parts, by name."""
        raise NotImplementedError

    def training_flops(self, length: int) -> dict[str, int]:
        """Floating-point operations to train on one source token and one target token, by kind.

        A matrix takes 2 operations a parameter forward and 4 backward, for each token that it is applied to.

        Args:
            length: tokens of a sentence, on both sides.

        Returns:
            "matrices" (6 x those of the network and of the pre-softmax projection; looking an embedding up takes
            none), and maybe others.
        """
        raise NotImplementedError

    def kept_activations(self, length: int) -> Activations:
        """What the backward pass needs for a source token and a target token, in sentences of `length` tokens.

        What XLA computes anew instead of keeping it is not subtracted.
        """
        raise NotImplementedError

    def sizes(self) -> dict[str, str]:
        """What `launch.describe` lists of the settings."""
        return {field.name: str(getattr(self, field.name)) for field in dataclasses.fields(self)}


_Class = TypeVar("_Class", bound=type[ModelConfig])
_FAMILIES: dict[str, type[ModelConfig]] = {}


def register_config(config_class: _Class) -> _Class:
    """Makes the settings of a family known under its name; a decorator.

    Raises:
        ValueError: another class has that name.
    """
    known = _FAMILIES.setdefault(config_class.family, config_class)
    if (known.__module__, known.__qualname__) != (config_class.__module__, config_class.__qualname__):
        raise ValueError(f"family {config_class.family!r} is registered already, by {known.__module__}")
    _FAMILIES[config_class.family] = config_class
    return config_class


def model_config_class(family: str) -> type[ModelConfig]:
    """The class of a family's settings.

    Raises:
        InputError: no such family; lists those there are.
    """
    if family not in _FAMILIES:
        raise InputError(
            f"unknown model.family {family!r}; valid: {', '.join(_FAMILIES)}, and what the modules of --extension add"
        )
    return _FAMILIES[family]
