"""Compiles serve_once.c and translates with it."""

import os
import pathlib
import shutil
import struct
import subprocess
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

from t2t_keras.inference.translator import Translator

SOURCE = pathlib.Path(__file__).parent / "serve_once.c"


def compile_program(folder: pathlib.Path) -> pathlib.Path | None:
    """Compiles the program into a folder; returns None if there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    path, libraries = folder / "serve_once", pathlib.Path(tf.sysconfig.get_lib())
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-o", path, SOURCE, "-isystem", tf.sysconfig.get_include()]
    command += [libraries / "libtensorflow_cc.so.2", libraries / "libtensorflow_framework.so.2"]
    done = subprocess.run([*command, f"-Wl,-rpath,{libraries}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def translate(
    program: pathlib.Path, op_library: str, version: pathlib.Path, texts: Sequence[bytes], batch_size: int
) -> list[tuple[str, float]]:
    """Returns translations and scores of `serving_default`."""
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    names = [signature.inputs["text"].name, *(signature.outputs[name].name for name in ("translation", "score"))]
    command = [program, op_library, version, *names, str(batch_size)]
    requests = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    environment = {**os.environ, "PATH": "/nowhere", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, input=requests, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    results, offset = [], 0
    while offset < len(done.stdout):
        (size,) = struct.unpack_from("=I", done.stdout, offset)
        text, offset = done.stdout[offset + 4 : offset + 4 + size].decode("utf-8"), offset + 4 + size
        results.append((text, *struct.unpack_from("=f", done.stdout, offset)))
        offset += 4
    return results


def assert_same_translations(
    folder: pathlib.Path,
    version: pathlib.Path,
    translator: Translator,
    texts: Sequence[str],
    batch_size: int,
    libraries: Sequence[str] = ("sentencepiece_tokenizer",),
) -> None:
    """Asserts that the C program translates with an export as the translator does; skips without a C compiler."""
    program = compile_program(folder) or pytest.skip("there is no C compiler here")
    operations = pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops"
    paths = ":".join(str(operations / f"_{library}.so") for library in libraries)
    expected = translator.translate(texts)
    actual = translate(program, paths, version, [text.encode() for text in texts], batch_size)
    assert [text for text, _ in actual] == [translation.text for translation in expected]
    np.testing.assert_allclose([s for _, s in actual], [t.score for t in expected], rtol=1e-4, atol=1e-3)
