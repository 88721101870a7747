"""Models by folder, and by name from a server that answers as Hugging Face's does."""

import contextlib
import http.server
import json
import pathlib
import sys
import threading
from collections.abc import Iterator

import huggingface_folder
import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.formats import huggingface
from t2t_keras.formats.files.model_folders import local_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """Lists the files of one repository, owner/name, and gives them."""

    folder: pathlib.Path
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/owner/name"):
            files = sorted(self.folder.iterdir())
            if "/tree/" in path:  # what newer versions of the package ask for
                answer = [
                    {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": each.name} for each in files
                ]
            else:
                answer = {"id": "owner/name", "sha": COMMIT, "siblings": [{"rfilename": each.name} for each in files]}
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        elif path.startswith(f"/owner/name/resolve/{COMMIT}/"):
            name = path.rpartition("/")[2]
            self.asked.append(name)
            body = (self.folder / name).read_bytes()
            self._answer(200, {"ETag": f'"{name}-{len(body)}"', "X-Repo-Commit": COMMIT}, body)
        else:
            self._answer(404, {"X-Error-Code": "RepoNotFound"}, b"")

    do_HEAD = do_GET

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[type[Hub]]:
    """A repository with a model, one file of another library beside it; the package asks this server for it."""
    pytest.importorskip("huggingface_hub")
    huggingface_folder.make_folder(tmp_path / "repository", np.random.default_rng(1))
    (tmp_path / "repository" / "tf_model.h5").write_bytes(b"not wanted")

    class ThisHub(Hub):
        folder = tmp_path / "repository"
        asked: list[str] = []

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ThisHub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        # The package reads its environment when it is imported.
        for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        with contextlib.ExitStack() as stack:
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            yield ThisHub
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


def test_a_model_is_downloaded_by_its_name(hub):
    folder = local_folder("hf://owner/name")
    assert folder != hub.folder and "tf_model.h5" not in hub.asked
    there, here = huggingface.read(hub.folder), huggingface.read(folder)
    assert here.config == there.config and here.weights.keys() == there.weights.keys()
    for name, array in there.weights.items():
        np.testing.assert_array_equal(here.weights[name], array)


def test_a_name_that_nobody_has_is_named(hub):
    with pytest.raises(InputError, match=r"^hf://owner/other cannot be downloaded: "):
        local_folder("hf://owner/other")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="hf://a/b: the package huggingface_hub is missing: pip install"):
        local_folder("hf://a/b")


def test_a_folder_is_itself(tmp_path):
    assert local_folder(str(tmp_path)) == tmp_path
    with pytest.raises(InputError, match=f"{tmp_path}/none is no folder"):
        local_folder(f"{tmp_path}/none")
