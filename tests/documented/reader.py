"""A reader of one page, who types its commands one after the other in a folder of their own."""

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

# What each program makes. `launch.average_checkpoints` and `launch.quickstart` have rows of their own below.
MAKES = {
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
NEEDS = ("data_dir", "init_from", "vocab_from", "model_dir", "ensemble", "export_dir")
SHIPPED = "saved_models/en_de_fr"  # part of the repository
# Folders that pages name and no command makes.
ALIKE = {
    "runs/one": "runs/mine",
    "runs/two": "runs/mine",
    "data/craft": "data/trees",
    "runs/table2_equal_cost/transformer_whole/seed_1": "runs/multi30k",
}


def made_by(command: Command) -> list[str]:
    """The files and folders that a command makes."""
    if command.program == "convert":
        return command.values("output") or command.values("model_dir")
    if command.program == "average_checkpoints":
        run, *names = command.values("model_dir", "output")
        kept = f"{run}/files" if "://" in run else run  # as object storage has it
        return [
            f"{kept}/checkpoints/{name}"
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
    return command.values(*MAKES.get(command.program, ()))


def maker(path: str) -> Command:
    """The first command that makes it, of all pages."""
    found = next((each for each in COMMANDS if path in made_by(each)), None)
    assert found is not None, f"no page makes {path}"
    return found


class Reader:
    """Runs commands in a folder.

    What a page uses and does not make itself is what the first command of any page that makes it, makes: `given`, a
    reader whom all share, runs that once.
    """

    def __init__(self, folder: Path, files: Path, given: "Reader | None" = None) -> None:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        for name in ("launch", "benchmarks", "tests"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "ANOTHER_CHECKOUT").symlink_to(ROOT)
        (folder / "saved_models").mkdir()
        (folder / SHIPPED).symlink_to(ROOT / SHIPPED)
        self.folder, self._given = folder, given or self
        self._not_made_here: set[str] = set()
        self._shared: set[str] = set()
        self.servers = Servers(folder)

    def run(self, command: Command) -> None:
        """Runs a command, and looks whether it did what it says; an AssertionError says how it did not."""
        if self._is_made_before(command):
            return None
        command = sizes.small(command)
        if asked := re.search(
            r"curl .*/v1/models/(\w+):|client_grpc\.py --model=(\w+)|--serving=.*saved_models/(\w+)", command.text
        ):
            name = asked[1] or asked[2] or asked[3]
            if not self.servers.has(name):
                self.run(Command(command.page, f"python -m launch.serve --export_dir=saved_models/{name}"))
            if asked[1]:
                return self.servers.ask(command)
            flag = "--serving" if asked[3] else "--server"
            command = sizes.with_words(command, f"{flag}={self.servers.grpc}")
        if re.search(r"curl .*:8501/translate", command.text):
            if not self.servers.has("mine"):
                self.run(Command(command.page, "python -m launch.serve --export_dir=saved_models/mine"))
            return self.servers.ask(command)
        if command.words[0] == "tensorboard":
            return self.servers.start_tensorboard(command)
        outputs = made_by(command)
        self._clear(command, outputs)
        self._find_all(command, outputs)
        if command.program == "serve":
            return self.servers.start(command)
        begun = time.time()
        done = self._perform(command)
        assert done.returncode == 0, f"{command}\nexit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        for output in outputs:
            assert self._newest(output) >= begun or command.program == "study", f"{command}\nnothing new in {output}"
        printed = (self.folder / command.stdout).read_text("utf-8") if command.stdout else done.stdout
        assert outputs or printed, f"{command}\nprinted nothing\n{done.stderr}"
        return None

    def _is_made_before(self, command: Command) -> bool:
        """Whether it is the first that makes something, in the same words; then it has run, or runs now, for all."""
        outputs = made_by(command)
        if self._given is self or any("://" in path or (self.folder / path).exists() for path in outputs):
            return False
        if not outputs or any(command.text != maker(path).text for path in outputs):
            return False
        needed = {path.partition("@")[0] for path in command.values(*NEEDS)} - set(outputs)
        if any((self.folder / path).exists() for path in needed - self._not_made_here - self._shared):
            return False  # made here, and perhaps in another way
        for path in outputs:
            self._find(path, [])
            self._not_made_here.remove(path)
            self._shared.add(path)
        return True

    def _clear(self, command: Command, outputs: list[str]) -> None:
        """Removes what the page makes itself and had before that from elsewhere."""
        for output in outputs:
            if command.program != "average_checkpoints" and output in self._not_made_here:
                shutil.rmtree(self.folder / output)
                self._not_made_here.remove(output)

    def _find_all(self, command: Command, outputs: list[str]) -> None:
        for path in command.values(*NEEDS):
            self._find(path.partition("@")[0], outputs)

    def _find(self, path: str, outputs: list[str]) -> None:
        if "://" in path or path in outputs or (self.folder / path).exists():
            return
        if path in ALIKE:
            self._find(ALIKE[path], outputs)
            source = self.folder / ALIKE[path]
        else:
            if self._given is not self:
                self._given._find(path, [])
            else:
                self.run(maker(path))
            source = self._given.folder / path
        if source != self.folder / path:
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.folder / path)
            self._not_made_here.add(path)

    def _perform(self, command: Command) -> subprocess.CompletedProcess:
        """Runs it as a fork of a Python that has TensorFlow, or as a process of its own where that would be another."""
        module, words = command.module, command.words
        environment = {**os.environ, **command.environment, "MPLBACKEND": "agg"}
        environment |= {"PYTHONPATH": str(ROOT), **programs.QUICKLY_COMPILED}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with contextlib.ExitStack() as files:
            typed = "in.txt" if command.program == "translate" else os.devnull  # it asks for lines
            stdin = files.enter_context(open(self.folder / (command.stdin or typed)))
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
        """When what a path holds was last written; 0 if it is not there."""
        if "://" in path:
            store = fsspec.filesystem(path.partition(":")[0], use_listings_cache=False, skip_instance_cache=True)
            objects = store.find(path, detail=True).values()
            return max((each["LastModified"].timestamp() + 1 for each in objects), default=0.0)  # whole seconds
        found = self.folder / path
        files = [each for each in found.rglob("*") if each.is_file()] if found.is_dir() else [found] * found.exists()
        return max((each.stat().st_mtime for each in files if each.stat().st_size), default=0.0)


@contextlib.contextmanager
def reader(folder: Path, files: Path, given: Reader | None = None) -> Iterator[Reader]:
    """A reader whose servers end with him."""
    found = Reader(folder, files, given)
    try:
        yield found
    finally:
        found.servers.stop()
