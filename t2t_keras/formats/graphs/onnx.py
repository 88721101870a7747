"""Models for ONNX, which many runtimes read: `encoder.onnx` and `step.onnx`, converted by the package tf2onnx.

Reference: https://onnx.ai
"""

import contextlib
import io
import logging
import tempfile
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.formats.graphs.standalone_folder import write_beside
from t2t_keras.formats.graphs.token_graphs import TokenGraphs
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.machine.notices import without_notices

NUMBERS = ("float32", "int8")
_OPSET = 18


def write(model: PortableModel, folder: Path, numbers: str = "float32") -> tuple[str, ...]:
    """Writes a Transformer in ONNX, its vocabularies and a program that translates with them; returns notes.

    Raises:
        InputError: the model has settings that the graphs have no place for, `numbers` is none of `NUMBERS`, or a
            package is missing: tf2onnx, or onnxruntime, which rounds to 8 bits.
    """
    if numbers not in NUMBERS:
        raise InputError(f"--quantization={numbers}: ONNX takes {', '.join(NUMBERS)}")
    graphs = TokenGraphs(model, "ONNX")
    for name, function in (("encoder", graphs.encode), ("step", graphs.step)):
        path = folder / f"{name}.onnx"
        with tempfile.TemporaryDirectory() as temporary:
            plain = path if numbers == "float32" else Path(temporary) / path.name
            _convert(function, plain)
            if numbers == "int8":
                _round(plain, path)
    return write_beside(model, folder)


def _convert(function: Any, path: Path) -> None:
    try:
        import tf2onnx
    except ModuleNotFoundError as error:
        raise InputError("the package tf2onnx is missing: pip install tf2onnx") from error
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    with without_notices(), contextlib.redirect_stderr(io.StringIO()):
        tf2onnx.convert.from_function(function, function.input_signature, opset=_OPSET, output_path=str(path))


def _round(plain: Path, path: Path) -> None:
    """Rounds the matrices that are multiplied with to 8 bits, and what they multiply at run time."""
    try:
        from onnxruntime import quantization
    except ModuleNotFoundError as error:
        raise InputError("--quantization=int8: onnxruntime is missing: pip install onnxruntime") from error
    quantization.quantize_dynamic(
        plain, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=quantization.QuantType.QInt8
    )
