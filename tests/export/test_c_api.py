"""A program in C, without Python, loads an exported model with TensorFlow's own loader and translates."""

import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from exporting import LINES, TEXTS
from tensorflow.core.protobuf import saved_model_pb2

SOURCE = pathlib.Path(__file__).parent / "serve_once.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> pathlib.Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler on this machine")
    path = tmp_path_factory.mktemp("program") / "serve_once"
    libraries = pathlib.Path(tf.sysconfig.get_lib())
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-o", path, SOURCE, "-isystem", tf.sysconfig.get_include()]
    command += [libraries / "libtensorflow_cc.so.2", libraries / "libtensorflow_framework.so.2"]
    done = subprocess.run([*command, f"-Wl,-rpath,{libraries}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def run(program, op_library, version) -> list[tuple[str, float]]:
    """Translations and scores of all texts."""
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    names = [signature.inputs["text"].name, *(signature.outputs[name].name for name in ("translation", "score"))]
    command = [program, op_library, version, *names, "8"]
    requests = b"".join(struct.pack("=I", len(text)) + text for text in TEXTS)
    environment = {**os.environ, "PATH": "/nowhere", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, input=requests, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found, place = [], 0
    while place < len(done.stdout):
        (size,) = struct.unpack_from("=I", done.stdout, place)
        found.append(
            (
                done.stdout[place + 4 : place + 4 + size].decode("utf-8"),
                *struct.unpack_from("=f", done.stdout, place + 4 + size),
            )
        )
        place += 8 + size
    return found


def test_it_translates_as_the_translator_does(translator, version, op_library, program):
    expected = translator.translate(LINES)
    texts, scores = zip(*run(program, op_library, version), strict=True)
    assert list(texts) == [translation.text for translation in expected]
    np.testing.assert_allclose(scores, [translation.score for translation in expected], rtol=1e-5, atol=1e-4)


def test_it_needs_the_operations(version, program):
    """So that a program which found them elsewhere would be noticed."""
    done = subprocess.run([program, "no_such_library.so", version, "a:0", "b:0", "c:0", "1"], capture_output=True)
    assert done.returncode == 1
    assert b"no_such_library.so" in done.stderr
