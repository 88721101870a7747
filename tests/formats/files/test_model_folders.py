"""Models by folder, and by name from a server that answers as Hugging Face's does."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from t2t_keras.formats import huggingface
from t2t_keras.formats.files.model_folders import local_folder
from tests.formats import huggingface_folder
from tests.formats.hub import Hub, serving


def forget() -> None:
    """Lets the package be imported anew: it reads its environment then."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    """A repository with a model and a file of another library."""
    pytest.importorskip("huggingface_hub")
    huggingface_folder.make_folder(tmp_path / "repository", np.random.default_rng(1))
    (tmp_path / "repository" / "tf_model.h5").write_bytes(b"not wanted")
    with serving(tmp_path / "repository") as server:
        for name, value in server.environment(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        forget()
        yield server
        forget()


def test_a_model_is_downloaded_by_its_name(hub):
    folder = local_folder("hf://owner/name")
    assert folder != hub.folder and "tf_model.h5" not in hub.asked
    there, here = huggingface.read(hub.folder), huggingface.read(folder)
    assert here.config == there.config and here.weights.keys() == there.weights.keys()
    for name, array in there.weights.items():
        np.testing.assert_array_equal(here.weights[name], array)
