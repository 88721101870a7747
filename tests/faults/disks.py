"""Disks that can be filled and emptied during training."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest


class SmallDisk:
    """A separate file system in memory; requires the right to mount."""

    def __init__(self, folder: pathlib.Path, size: str = "16m") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid():
            pytest.skip("only root may mount a small file system; the limit on the size of files is tried instead")
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")

    def watch(self, training) -> None:
        self._training = training

    def fill(self) -> None:
        """Fills the disk at a moment when it contains no temporary file that the process would delete."""
        while True:
            self._training.send(signal.SIGSTOP)
            time.sleep(0.02)
            if not [*self.folder.rglob(".tmp_*"), *self.folder.rglob(".*.tmp")]:
                break
            self._training.send(signal.SIGCONT)
            time.sleep(0.02)
        with open(self.folder / "ballast", "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        self._training.send(signal.SIGCONT)

    def empty(self) -> None:
        (self.folder / "ballast").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)


class LimitedFiles:
    """A folder, and a process whose file sizes can be limited temporarily, which needs no rights."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = 0

    def watch(self, training) -> None:
        self._process = training.process.pid

    def fill(self) -> None:
        self._limit(1)

    def empty(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def close(self) -> None:
        """Does nothing, because the limit ends with the process."""

    def _limit(self, size: int) -> None:
        _, hard = resource.prlimit(self._process, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process, resource.RLIMIT_FSIZE, (size, hard))


@contextlib.contextmanager
def open_disk(kind: str, folder: pathlib.Path) -> Iterator[SmallDisk | LimitedFiles]:
    """A disk of the given kind, which is closed when the context ends."""
    disk = {"small disk": SmallDisk, "limited files": LimitedFiles}[kind](folder)
    try:
        yield disk
    finally:
        disk.close()


def drop_permission_override() -> Callable[[], None] | None:
    """Returns a function that removes the right of a child of root to override permissions."""
    if os.geteuid():
        return None
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def drop() -> None:
        drop_from_bounding_set, override_permissions = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        if libc.prctl(drop_from_bounding_set, override_permissions, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    return drop
