"""The formats by name; the module of one, with what it needs, is imported when it is first used."""

import functools
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_keras.formats.portable_model import PortableModel

# Reads a model from its folder; languages are "source_language" and "target_language" as far as somebody gave them,
# instead of what the files say. An InputError names a file that is missing or damaged, or the setting or the tensor of
# another network.
Reader = Callable[[Path, Mapping[str, str]], "PortableModel"]
# Writes a model into an empty folder, its weights as "float32" or, if the format can, quantized; returns notes on what
# differs there. An InputError names the setting or the quantization that the format has no place for, or the package
# that is missing.
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
}
