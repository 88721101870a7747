"""Finds and reads exported models, which can be used in place of a run's directory."""

import pathlib
import re

from t2t_keras.errors import InputError
from t2t_keras.export_contract import GRAPH_FILE, WEIGHTS

_ESCAPES = {"..": ".", ".S": "/"}  # TensorFlow's escapes of "." and "/" in names
_WEIGHTS = "weights/"  # prefix of the names of weights in an export


def exported_version(path: pathlib.Path) -> pathlib.Path | None:
    """Returns the directory of an export's version, or None if `path` is not an exported model.

    Args:
        path: directory of a version, or of an export, for which its newest complete version is returned.
    """
    if (path / GRAPH_FILE).is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    versions = [int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()]
    paths = [path / str(version) for version in sorted(versions) if (path / str(version) / GRAPH_FILE).is_file()]
    return paths[-1] if paths else None


def exported_weights(version: pathlib.Path) -> dict:
    """Reads the weights of an exported model as float32 arrays by name; raises an InputError if that fails."""
    import tensorflow as tf  # slow to import, and not needed to read a run

    try:
        reader = tf.train.load_checkpoint(str(version / WEIGHTS))
        keys = [key for key in reader.get_variable_to_dtype_map() if key.startswith(_WEIGHTS)]
        arrays = {key: reader.get_tensor(key).astype("float32") for key in keys}
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:  # IndexError: a truncated file
        message = str(error).splitlines()[0]
        raise InputError(f"{version}: the weights of the exported model cannot be read: {message}") from None
    names = {key: key.removeprefix(_WEIGHTS).partition("/.ATTRIBUTES")[0] for key in arrays}
    return {re.sub(r"\.[.S]", lambda match: _ESCAPES[match[0]], names[key]): array for key, array in arrays.items()}
