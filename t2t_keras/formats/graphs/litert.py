"""Writes models for LiteRT, formerly TensorFlow Lite: `model.tflite` with the signatures "encode" and "step".

Reference: https://ai.google.dev/edge/litert
"""

import tempfile
from pathlib import Path

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.formats.graphs.standalone_folder import write_standalone_files
from t2t_keras.formats.graphs.token_graphs import TokenGraphs
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.machine.notices import without_notices

QUANTIZATIONS = ("float32", "float16", "int8")


def write(model: PortableModel, folder: Path, quantization: str = "float32") -> tuple[str, ...]:
    """Writes a model for LiteRT, and a program that translates with it; see `known_formats.Writer`."""
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization={quantization}: LiteRT supports {', '.join(QUANTIZATIONS)}")
    graphs = TokenGraphs(model, "LiteRT", in_one_file=True)
    signatures = {name: getattr(graphs, name).get_concrete_function() for name in ("encode", "step")}
    with tempfile.TemporaryDirectory() as saved_model, without_notices():
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(tf.Module(), saved_model, signatures=signatures, options=options)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=list(signatures))
        if quantization != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantization == "float16":
            converter.target_spec.supported_types = [tf.float16]
        content = converter.convert()
    (folder / "model.tflite").write_bytes(content)
    return write_standalone_files(model, folder)
