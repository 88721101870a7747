"""Writes models in ONNX, which many runtimes read: `encoder.onnx` and `step.onnx`, converted by the package tf2onnx.

Reference: https://onnx.ai
"""

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import InputError, optional_module
from t2t_keras.formats.graphs.standalone_folder import write_standalone_files
from t2t_keras.formats.graphs.token_graphs import TokenGraphs
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.machine.notices import without_notices

QUANTIZATIONS = ("float32", "int8")
_OPSET = 18


def write(model: PortableModel, folder: Path, quantization: str = "float32") -> tuple[str, ...]:
    """Writes a model in ONNX, and a program that translates with it; see `known_formats.Writer`."""
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization={quantization}: ONNX supports {', '.join(QUANTIZATIONS)}")
    graphs = TokenGraphs(model, "ONNX", in_one_file=False)
    tf2onnx, onnx = (_package(name) for name in ("tf2onnx", "onnx"))
    quantizer = _package("onnxruntime.quantization") if quantization == "int8" else None
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    for name, function in (("encoder", graphs.encode), ("step", graphs.step)):
        path = folder / f"{name}.onnx"
        with tempfile.TemporaryDirectory() as temporary, without_notices():
            plain = path if quantizer is None else Path(temporary) / path.name
            tf2onnx.convert.from_function(
                function,
                function.input_signature,
                opset=_OPSET,
                custom_op_handlers={"Erfc": (_erfc, [])},
                output_path=str(plain),
            )
            if quantizer is not None:
                _quantize(quantizer, plain, path)
        onnx.checker.check_model(str(path))
    return write_standalone_files(model, folder)


def _package(name: str) -> Any:
    package = name.partition(".")[0]
    return optional_module(name, f"the package {package} is missing: pip install {package}")


def _erfc(graph: Any, node: Any, *_: Any) -> None:
    """Replaces erfc(x) by 1 - erf(x): TensorFlow computes gelu with erfc, which ONNX lacks."""
    one = graph.make_const(f"{node.name}/one", np.float32(1))
    erf = graph.make_node("Erf", node.input)
    complement = graph.make_node("Sub", [one.output[0], erf.output[0]])
    graph.replace_all_inputs(node.output[0], complement.output[0])
    graph.remove_node(node.name)


def _quantize(quantizer: Any, plain: Path, path: Path) -> None:
    """Quantizes the weights of matrix products to 8 bits; their other operands are quantized at run time."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # silences the advice to optimise the graph first, which changes nothing here
    try:
        quantizer.quantize_dynamic(
            plain, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=quantizer.QuantType.QInt8
        )
    finally:
        logger.setLevel(level)
