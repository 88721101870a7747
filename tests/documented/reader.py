"""Runs the commands of a page one after the other, in a separate folder."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec

from tests import programs

from . import sizes
from .pages import COMMANDS, ROOT, Command
from .servers import Servers

# The flags that name the outputs of each program. `outputs_of` treats other programs separately.
OUTPUT_FLAGS = {
    "prepare_data": ["data_dir"],
    "train": ["model_dir"],
    "fit": ["output"],
    "export": ["export_dir"],
    "attention": ["output"],
    "distil": ["output_source", "output_target"],
    "draw_trees": ["output_dir"],
    "evaluate": ["output_dir"],
    "translate": ["output"],
    "score": ["output"],
    "study": ["study_dir"],
}
INPUT_FLAGS = ("data_dir", "init_from", "vocab_from", "model_dir", "ensemble", "export_dir")
SHIPPED = "saved_models/en_de_fr"  # part of the repository
# Folders that pages mention but no command creates.
SUBSTITUTES = {
    "runs/one": "runs/mine",
    "runs/two": "runs/mine",
    "data/craft": "data/trees",
    "runs/table2_equal_cost/transformer_whole/seed_1": "runs/multi30k",
}


def outputs_of(command: Command) -> list[str]:
    """The files and folders that a command creates."""
    if command.program == "convert":
        return command.values("output") or command.values("model_dir")
    if command.program == "average_checkpoints":
        run, *names = command.values("model_dir", "output")
        run_dir = f"{run}/files" if "://" in run else run  # the layout in object storage
        return [
            f"{run_dir}/checkpoints/{name}"
            for name in names
            or [f"averaged_last{last}" for last in command.values("average_last")]
            or [f"averaged_{epochs}_epochs" for epochs in command.values("average_epochs")]
        ]
    if command.program == "quickstart":
        return [f"{folder}/quickstart" for folder in ("data", "runs", "saved_models")]
    if command.program == "study" and {"--plan", "--print"} & set(command.words):
        return []
    if command.module.startswith("benchmarks."):
        return command.values("plot", "output")
    if "--in_place" in command.words:
        return command.values("input")
    return command.values(*OUTPUT_FLAGS.get(command.program, ()))


def first_command_for(path: str) -> Command:
    """The first command of all pages that creates a path."""
    command = next((each for each in COMMANDS if path in outputs_of(each)), None)
    assert command is not None, f"no page creates {path}"
    return command


class Reader:
    """Runs commands in a folder.

    If a page uses a file that it does not create, the reader copies it from the shared reader, which runs the
    first command that creates the file once.
    """

    def __init__(self, folder: Path, files: Path, shared_reader: "Reader | None" = None) -> None:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        for name in ("launch", "benchmarks", "tests"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "ANOTHER_CHECKOUT").symlink_to(ROOT)
        (folder / "saved_models").mkdir()
        (folder / SHIPPED).symlink_to(ROOT / SHIPPED)
        self.folder, self._shared_reader = folder, shared_reader or self
        self._copied: set[str] = set()
        self._shared: set[str] = set()
        self.servers = Servers(folder)

    def run(self, command: Command) -> None:
        """Runs a command and checks its outputs; raises an AssertionError if they are not as documented."""
        if self._use_shared_output(command):
            return None
        command = sizes.reduce_sizes(command)
        if served := re.search(
            r"curl .*/v1/models/(\w+):|client_grpc\.py --model=(\w+)|--serving=.*saved_models/(\w+)", command.text
        ):
            name = served[1] or served[2] or served[3]
            if not self.servers.has(name):
                self.run(Command(command.page, f"python -m launch.serve --export_dir=saved_models/{name}"))
            if served[1]:
                return self.servers.ask(command)
            flag = "--serving" if served[3] else "--server"
            command = sizes.with_words(command, f"{flag}={self.servers.grpc}")
        if re.search(r"curl .*:8501/translate", command.text):
            if not self.servers.has("mine"):
                self.run(Command(command.page, "python -m launch.serve --export_dir=saved_models/mine"))
            return self.servers.ask(command)
        if command.words[0] == "tensorboard":
            return self.servers.start_tensorboard(command)
        outputs = outputs_of(command)
        self._clear(command, outputs)
        self._find_all(command, outputs)
        if command.program == "serve":
            return self.servers.start(command)
        started = time.time()
        result = self._execute(command)
        assert result.returncode == 0, f"{command}\nexit status {result.returncode}\n{result.stdout}\n{result.stderr}"
        for output in outputs:
            assert self._newest(output) >= started or command.program == "study", f"{command}\n{output} is unchanged"
        printed = (self.folder / command.stdout).read_text("utf-8") if command.stdout else result.stdout
        assert outputs or printed, f"{command}\nno output\n{result.stderr}"
        return None

    def _use_shared_output(self, command: Command) -> bool:
        """Whether the shared reader runs the same command, because it is the first that creates these outputs."""
        outputs = outputs_of(command)
        if self._shared_reader is self or any("://" in path or (self.folder / path).exists() for path in outputs):
            return False
        if not outputs or any(command.text != first_command_for(path).text for path in outputs):
            return False
        needed = {path.partition("@")[0] for path in command.values(*INPUT_FLAGS)} - set(outputs)
        if any((self.folder / path).exists() for path in needed - self._copied - self._shared):
            return False  # the page created an input itself
        for path in outputs:
            self._find(path, [])
            self._copied.remove(path)
            self._shared.add(path)
        return True

    def _clear(self, command: Command, outputs: list[str]) -> None:
        """Removes outputs that the reader copied earlier and that the page now creates."""
        for output in outputs:
            if command.program != "average_checkpoints" and output in self._copied:
                shutil.rmtree(self.folder / output)
                self._copied.remove(output)

    def _find_all(self, command: Command, outputs: list[str]) -> None:
        for path in command.values(*INPUT_FLAGS):
            self._find(path.partition("@")[0], outputs)

    def _find(self, path: str, outputs: list[str]) -> None:
        if "://" in path or path in outputs or (self.folder / path).exists():
            return
        if path in SUBSTITUTES:
            self._find(SUBSTITUTES[path], outputs)
            source = self.folder / SUBSTITUTES[path]
        else:
            if self._shared_reader is not self:
                self._shared_reader._find(path, [])
            else:
                self.run(first_command_for(path))
            source = self._shared_reader.folder / path
        if source != self.folder / path:
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.folder / path)
            self._copied.add(path)

    def _execute(self, command: Command) -> subprocess.CompletedProcess:
        """Runs a command in a fork of a process that has imported TensorFlow, or in a new process if required."""
        module, words = command.module, command.words
        environment = {**os.environ, **command.environment, "MPLBACKEND": "agg"}
        environment |= {"PYTHONPATH": str(ROOT), **programs.QUICK_COMPILATION}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with contextlib.ExitStack() as files:
            default_input = "in.txt" if command.program == "translate" else os.devnull  # translate reads standard input
            stdin = files.enter_context(open(self.folder / (command.stdin or default_input)))
            stdout = files.enter_context(open(self.folder / command.stdout, "w")) if command.stdout else subprocess.PIPE
            more: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": subprocess.PIPE, "text": True}
            more |= {"cwd": self.folder, "env": environment, "timeout": sizes.SECONDS}
            if words[0] != "python" or "|" in words:
                return subprocess.run(["bash", "-c", command.text], **more)
            arguments = ["-m", "tests.documented.program", module, *words[3:]] if module else words[1:]
            if command.environment:
                return subprocess.run([sys.executable, *arguments], **more)
            return programs.run(arguments, **more)

    def _newest(self, path: str) -> float:
        """The time of the last change to the files of a path, or 0 if there are none."""
        if "://" in path:
            store = fsspec.filesystem(path.partition(":")[0], use_listings_cache=False, skip_instance_cache=True)
            objects = store.find(path, detail=True).values()
            return max((each["LastModified"].timestamp() + 1 for each in objects), default=0.0)  # whole seconds
        root = self.folder / path
        files = [each for each in root.rglob("*") if each.is_file()] if root.is_dir() else [root] * root.exists()
        return max((each.stat().st_mtime for each in files if each.stat().st_size), default=0.0)


@contextlib.contextmanager
def reader(folder: Path, files: Path, shared_reader: Reader | None = None) -> Iterator[Reader]:
    """A reader whose servers are stopped when the context ends."""
    page_reader = Reader(folder, files, shared_reader)
    try:
        yield page_reader
    finally:
        page_reader.servers.stop()
