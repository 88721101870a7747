"""Finds and reads exported models, which can take the place of a run's directory."""

import pathlib
import re

from t2t_keras.errors import InputError

_ESCAPED, _MEANT = re.compile(r"\.[.S]"), {"..": ".", ".S": "/"}  # how TensorFlow writes what names have
_WEIGHTS = "weights/"  # prefix of the weights' names in an export


def exported_version(path: pathlib.Path) -> pathlib.Path | None:
    """The directory of the version, or of the newest one, if the path is that of an exported model; otherwise None."""
    if (path / "saved_model.pb").is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    versions = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
    whole = [path / str(version) for version in sorted(versions) if (path / str(version) / "saved_model.pb").is_file()]
    return whole[-1] if whole else None


def exported_weights(version: pathlib.Path) -> dict:
    """The weights of an exported model: name -> float32 array; raises an InputError if they cannot be read."""
    import tensorflow as tf  # heavy, and a run can be read without it

    try:
        reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
        keys = [key for key in reader.get_variable_to_dtype_map() if key.startswith(_WEIGHTS)]
        arrays = {key: reader.get_tensor(key).astype("float32") for key in keys}
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:  # IndexError: a truncated file
        message = str(error).splitlines()[0]
        raise InputError(f"{version}: the weights of the exported model cannot be read: {message}") from None
    names = {key: key.removeprefix(_WEIGHTS).partition("/.ATTRIBUTES")[0] for key in arrays}
    return {_ESCAPED.sub(lambda found: _MEANT[found[0]], names[key]): array for key, array in arrays.items()}
