"""A server with the interface that Hugging Face's package expects, with one repository."""

import contextlib
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """Serves a directory as a repository.

    Attributes:
        repository: its name on the server.
        requested: the files that clients have requested.
    """

    def __init__(self, folder: pathlib.Path, repository: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.repository = folder, repository
        self.requested: list[str] = []

    def environment(self, cache: pathlib.Path) -> dict[str, str]:
        """Returns the environment variables that make the package use this server and a cache directory."""
        return {"HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}


@contextlib.contextmanager
def serving(folder: pathlib.Path, repository: str = "owner/name") -> Iterator[Hub]:
    """Runs a server within the context."""
    with Hub(folder, repository) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path, repository = self.path.partition("?")[0], self.server.repository
        if path.startswith(f"/api/models/{repository}"):
            files = sorted(self.server.folder.iterdir())
            if "/tree/" in path:  # newer versions of the package
                answer: object = [
                    {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": file.name} for file in files
                ]
            else:
                answer = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": file.name} for file in files]}
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        elif path.startswith(f"/{repository}/resolve/{COMMIT}/"):
            name = path.rpartition("/")[2]
            self.server.requested.append(name)
            body = (self.server.folder / name).read_bytes()
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
