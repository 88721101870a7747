"""A model's weights by name."""

from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel


def weight_names(model: SequenceModel) -> list[str]:
    """A stable name for each of a model's weights, in order: its path below the model."""
    return [weight.path.partition("/")[2] for weight in model.trainable_variables]


def assign_weights(model: SequenceModel, weights: dict) -> None:
    """Gives a built model its weights by name.

    Args:
        model: built.
        weights: name -> float32 array.

    Raises:
        InputError: a name is missing or unknown, or a shape differs.
    """
    check_weights(model, weights)
    for name, variable in zip(weight_names(model), model.trainable_variables, strict=True):
        variable.assign(weights[name])


def check_weights(model: SequenceModel, arrays: dict, part: str = "weights") -> None:
    """Whether a checkpoint's arrays are of a model's weights.

    Args:
        model: built.
        arrays: name -> array.
        part: of the checkpoint, for the message.

    Raises:
        InputError: a name is missing or unknown, or a shape differs.
    """
    variables = dict(zip(weight_names(model), model.trainable_variables, strict=True))
    if variables.keys() != set(arrays):
        odd = sorted(variables.keys() ^ set(arrays))
        raise InputError(f"the checkpoint holds the {part} of another model; they differ in {', '.join(odd[:5])}")
    for name, variable in variables.items():
        if tuple(variable.shape) != tuple(arrays[name].shape):
            raise InputError(
                f"the checkpoint's {name} has shape {tuple(arrays[name].shape)}, the model's {tuple(variable.shape)}"
            )
