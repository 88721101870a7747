"""A server that answers as Hugging Face's does to its package, with one repository."""

import contextlib
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """The server of a folder.

    Attributes:
        repository: its name there.
        asked: the files that were asked for.
    """

    def __init__(self, folder: pathlib.Path, repository: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.repository = folder, repository
        self.asked: list[str] = []

    def environment(self, cache: pathlib.Path) -> dict[str, str]:
        """The environment variables with which the package asks this server, and keeps what it gets in a folder."""
        return {"HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}


@contextlib.contextmanager
def serving(folder: pathlib.Path, repository: str = "owner/name") -> Iterator[Hub]:
    """A server that runs meanwhile."""
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
            if "/tree/" in path:  # what newer versions of the package ask for
                answer: object = [
                    {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": each.name} for each in files
                ]
            else:
                answer = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": each.name} for each in files]}
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        elif path.startswith(f"/{repository}/resolve/{COMMIT}/"):
            name = path.rpartition("/")[2]
            self.server.asked.append(name)
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
