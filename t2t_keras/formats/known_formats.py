"""The formats by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from t2t_keras.formats import ctranslate2, fairseq, huggingface, marian, tensor2tensor
from t2t_keras.formats.graphs import litert, onnx
from t2t_keras.formats.portable_model import PortableModel

# Reads a model from its folder; languages are "source_language" and "target_language" as far as somebody gave them,
# instead of what the files say. An InputError names a file that is missing or damaged, or the setting or the tensor of
# another network.
Reader = Callable[[Path, Mapping[str, str]], PortableModel]
# Writes a model into an empty folder, its weights as "float32" or, if the format can, quantized; returns notes on what
# differs there. An InputError names the setting or the quantization that the format has no place for, or the package
# that is missing.
Writer = Callable[[PortableModel, Path, str], tuple[str, ...]]

READERS: Mapping[str, Reader] = {
    "huggingface": huggingface.read,
    "marian": marian.read,
    "fairseq": fairseq.read,
    "tensor2tensor": tensor2tensor.read,
}
WRITERS: Mapping[str, Writer] = {
    "huggingface": huggingface.write,
    "ctranslate2": ctranslate2.write,
    "onnx": onnx.write,
    "litert": litert.write,
}
