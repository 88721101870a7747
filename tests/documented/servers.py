"""The servers that the commands of a page start, and requests to them."""

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
    """Runs one server at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._name = folder, ""
        self._process: Program | None = None
        self.rest = self.grpc = ""

    def has(self, name: str) -> bool:
        """Returns whether the server serves this model."""
        return self._name == name

    def start(self, command: Command) -> None:
        """Stops the previous server, starts one on free ports, and sends a request."""
        self.stop()
        arguments = ["-m", *command.words[2:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = Program(arguments, cwd=self._folder, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        addresses = re.search(r"REST at (https?://\S+), gRPC at (\S+)", line)
        assert addresses, f"{command}\n{line}"
        self._name = Path(command.values("export_dir")[0]).name
        self.rest, self.grpc = (place.replace("0.0.0.0", "127.0.0.1") for place in addresses.groups())
        if self.rest.startswith("https"):
            return  # requests would need the certificate and a key
        url = f"{self.rest}/v1/models/{self._name}:predict"
        tag = "<2de> " if self._name == "en_de_fr" else ""
        response = httpx.post(url, json={"inputs": [f"{tag}A dog runs."]}, timeout=sizes.SECONDS)
        assert response.status_code == 200 and response.json()["outputs"], f"{command}\n{response.text}"

    def ask(self, command: Command) -> None:
        """Runs a curl command with the address of the server."""
        text, count = re.subn(r"https?://(127\.0\.0\.1|localhost|HOST):8501", self.rest, command.text)
        assert count == 1, command
        text = f"{text} --cacert chain.pem --silent --show-error --write-out '\\n%{{http_code}}'"
        result = subprocess.run(
            ["bash", "-c", text], capture_output=True, text=True, timeout=sizes.SECONDS, cwd=self._folder
        )
        body, _, status = result.stdout.rpartition("\n")
        assert (result.returncode, status) == (0, "200"), f"{command}\n{result.stdout}\n{result.stderr}"
        if "stream" in text:
            return
        assert {"predictions", "outputs", "translatedText"} & json.loads(body).keys(), f"{command}\n{body}"

    def stop(self) -> None:
        """Stops the server, which must exit with status 0."""
        process, self._process, self._name = self._process, None, ""
        if process is not None:
            with process:
                process.terminate()
                status = process.wait(sizes.SECONDS)
            assert status == 0, status

    def start_tensorboard(self, command: Command) -> None:
        """Starts TensorBoard and requests its page."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        arguments = ["-m", "tensorboard.main", *command.words[1:]]
        with Program(arguments, cwd=self._folder, stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next((addresses[0] for line in lines if (addresses := re.search(r"http://\S+", line))), None)
            assert url, command
            try:
                assert httpx.get(url, timeout=sizes.SECONDS).status_code == 200
            finally:
                process.kill()  # TensorBoard sometimes keeps running after SIGTERM
