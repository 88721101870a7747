"""One exported model for all tests of this folder."""

import pathlib
import pickle
import subprocess
import sys

import pytest

from t2t_keras.export.writing import export_translator

sys.path.append(str(pathlib.Path(__file__).parent))

import exporting

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def translator():
    return exporting.translator()


@pytest.fixture(scope="session")
def version(translator, tmp_path_factory) -> pathlib.Path:
    """The directory of the exported model's only version."""
    export_dir = tmp_path_factory.mktemp("saved_models") / "tiny"
    return export_translator(translator, exporting.config_of(translator), export_dir, origin={"checkpoint": "none"})


@pytest.fixture(scope="session")
def op_library() -> str:
    """The library with the SentencePiece operations, by its path."""
    import tensorflow_text

    (path,) = pathlib.Path(tensorflow_text.__file__).parent.rglob("_sentencepiece_tokenizer.so")
    return str(path)


@pytest.fixture(scope="session")
def serve(version, op_library, tmp_path_factory):
    """A function that runs requests, pairs of signature and inputs, in another process."""

    def served(requests: list, path: pathlib.Path = version) -> list:
        folder = tmp_path_factory.mktemp("requests")
        files = [folder / "requests", folder / "results"]
        files[0].write_bytes(pickle.dumps(requests))
        command = [sys.executable, HERE / "serve_v1.py", op_library, path, *files]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        results, modules = pickle.loads(files[1].read_bytes())
        assert modules == [], "the process that serves must not know of these"
        return results

    return served
