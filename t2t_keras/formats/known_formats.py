"""The readers and writers of all formats by name. The module of a format is imported when it is first used."""

import functools
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_keras.formats.portable_model import PortableModel

# Reads a model from a folder. The mapping may have "source_language" and "target_language", as given by the user.
# Raises an InputError that names a missing or damaged file, or a setting or a tensor of an unsupported network.
Reader = Callable[[Path, Mapping[str, str]], "PortableModel"]
# Writes a model into an empty folder, with weights in "float32" or in a quantization that the format supports. Returns
# notes on differences from this project. Raises an InputError that names an unsupported setting or quantization, or a
# missing package.
Writer = Callable[["PortableModel", Path, str], tuple[str, ...]]


def _call(function: str, *arguments: Any) -> Any:
    return pkgutil.resolve_name(f"t2t_keras.formats.{function}")(*arguments)


READERS: Mapping[str, Reader] = {
    "huggingface": functools.partial(_call, "huggingface:read"),
    "marian": functools.partial(_call, "marian:read"),
    "fairseq": functools.partial(_call, "fairseq:read"),
    "tensor2tensor": functools.partial(_call, "tensor2tensor:read"),
}
WRITERS: Mapping[str, Writer] = {
    "huggingface": functools.partial(_call, "huggingface:write"),
    "ctranslate2": functools.partial(_call, "ctranslate2:write"),
    "onnx": functools.partial(_call, "graphs.onnx:write"),
    "litert": functools.partial(_call, "graphs.litert:write"),
    "argos": functools.partial(_call, "argos:write"),
}
