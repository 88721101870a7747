"""Servers that a page starts, and what it asks them."""

import json
import os
import re
import subprocess
from pathlib import Path

import httpx

from tests.programs import Program

from . import sizes
from .pages import ROOT, Command


class Servers:
    """The server that was started last."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._name = folder, ""
        self._process: Program | None = None
        self.rest = self.grpc = ""

    def has(self, name: str) -> bool:
        """Whether it serves this model."""
        return self._name == name

    def start(self, command: Command) -> None:
        """Starts it in the place of the one before, on free ports, and has it answer a request."""
        self.stop()
        arguments = ["-m", *command.words[2:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = Program(arguments, cwd=self._folder, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"REST at (https?://\S+), gRPC at (\S+)", line)
        assert found, f"{command}\n{line}"
        self._name = Path(command.values("export_dir")[0]).name
        self.rest, self.grpc = (place.replace("0.0.0.0", "127.0.0.1") for place in found.groups())
        if self.rest.startswith("https"):
            return  # what asks it needs its certificate and a key
        where = f"{self.rest}/v1/models/{self._name}:predict"
        answer = httpx.post(where, json={"inputs": ["A dog runs."]}, timeout=sizes.SECONDS)
        assert answer.status_code == 200 and answer.json()["outputs"], f"{command}\n{answer.text}"

    def ask(self, command: Command) -> None:
        """Runs a page's curl."""
        text, count = re.subn(r"https?://(127\.0\.0\.1|localhost|HOST):8501", self.rest, command.text)
        assert count == 1, command
        text = f"{text} --cacert chain.pem --silent --show-error --write-out '\\n%{{http_code}}'"
        done = subprocess.run(
            ["bash", "-c", text], capture_output=True, text=True, timeout=sizes.SECONDS, cwd=self._folder
        )
        body, _, status = done.stdout.rpartition("\n")
        assert (done.returncode, status) == (0, "200"), f"{command}\n{done.stdout}\n{done.stderr}"
        if "stream" in text:
            return
        assert {"predictions", "outputs", "translatedText"} & json.loads(body).keys(), f"{command}\n{body}"

    def stop(self) -> None:
        """Ends it; it must end well."""
        process, self._process, self._name = self._process, None, ""
        if process is not None:
            with process:
                process.terminate()
                status = process.wait(sizes.SECONDS)
            assert status == 0, status

    def start_tensorboard(self, command: Command) -> None:
        """Starts it and asks for its page."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        arguments = ["-m", "tensorboard.main", *command.words[1:]]
        with Program(arguments, cwd=self._folder, stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            where = next((found[0] for line in lines if (found := re.search(r"http://\S+", line))), None)
            assert where, command
            try:
                assert httpx.get(where, timeout=sizes.SECONDS).status_code == 200
            finally:
                process.terminate()
