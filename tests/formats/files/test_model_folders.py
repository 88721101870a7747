"""Models by directory and by name, from a server with Hugging Face's interface."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from t2t_keras.formats import huggingface
from t2t_keras.formats.files.model_folders import local_folder
from tests.formats import huggingface_folder
from tests.formats.hub import Hub, serving


def unload_package() -> None:
    """Removes the package from the imported modules, because it reads its environment when it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    """A repository with a model and a file for a different library."""
    pytest.importorskip("huggingface_hub")
    huggingface_folder.make_folder(tmp_path / "repository", np.random.default_rng(1))
    (tmp_path / "repository" / "tf_model.h5").write_bytes(b"not wanted")
    with serving(tmp_path / "repository") as server:
        for name, value in server.environment(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        unload_package()
        yield server
        unload_package()


def test_a_model_is_downloaded_by_its_name(hub):
    folder = local_folder("hf://owner/name")
    assert folder != hub.folder and "tf_model.h5" not in hub.requested
    original, downloaded = huggingface.read(hub.folder), huggingface.read(folder)
    assert downloaded.config == original.config and downloaded.weights.keys() == original.weights.keys()
    for name, array in original.weights.items():
        np.testing.assert_array_equal(downloaded.weights[name], array)
