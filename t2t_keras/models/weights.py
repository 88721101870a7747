"""A model's weights by name."""

from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel


def weight_names(model: SequenceModel) -> list[str]:
    """Stable names of a model's weights, in order: their paths below the model; a ValueError if two are equal."""
    names = [weight.path.partition("/")[2] for weight in model.trainable_variables]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"weights must have different paths, got several {', '.join(repeated[:5])}: name the layers")
    return names


def assign_weights(model: SequenceModel, weights: dict) -> None:
    """Sets a built model's weights from float32 arrays by name; raises InputError as `check_weights`."""
    check_weights(model, weights)
    for name, variable in zip(weight_names(model), model.trainable_variables, strict=True):
        variable.assign(weights[name])


def check_weights(model: SequenceModel, arrays: dict, part: str = "weights") -> None:
    """Checks that a checkpoint's arrays fit a built model.

    Raises:
        InputError: a name is missing or unknown, or a shape differs; `part` of the checkpoint is in the message.
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
