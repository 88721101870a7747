"""Reads and writes metrics.jsonl: one JSON object per line, each with "step" and "kind"."""

import io
import json
import logging
import math
import os
from pathlib import Path
from typing import Any

from t2t_keras.machine.files import is_full, replacing

Record = dict[str, Any]


class RecordFile:
    """Appends records as whole lines; if the disk is full, they wait in memory until there is space.

    Args:
        path: the file, which need not exist.
        last_step: `open` drops the records of later steps, and incomplete lines.
        last_validation: the same for validations; None means `last_step`.

    Attributes:
        kept: existing records that `open` keeps.
        is_shorter: whether `open` drops anything.
    """

    def __init__(self, path: Path, last_step: int, last_validation: int | None = None) -> None:
        last = {"valid": last_step if last_validation is None else last_validation}
        self.kept = [record for record in read_metrics(path) if record["step"] <= last.get(record["kind"], last_step)]
        self._lines = "".join(map(_line, self.kept))
        self.is_shorter = path.exists() and path.read_text(encoding="utf-8", errors="replace") != self._lines
        self._path = path
        self._waiting: list[bytes] = []
        self._unsynced: list[bytes] = []
        self._synced_size = 0
        self._is_full = False
        self._file: io.FileIO | None = None

    def open(self) -> None:
        """Drops stale lines and opens the file for appending; raises an OSError if it cannot be written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self.is_shorter:
            with replacing(self._path) as file:
                file.write(self._lines)
        self._file = io.FileIO(self._path, "ab")
        self._synced_size = os.fstat(self._opened.fileno()).st_size

    @property
    def is_closed(self) -> bool:
        return self._file is None or self._file.closed

    @property
    def _opened(self) -> io.FileIO:
        if self._file is None:
            raise ValueError("open() must be called before records are written")
        return self._file

    def append(self, record: Record) -> None:
        """Writes a record after the waiting ones; readers see them at once."""
        self._waiting.append(_line(record).encode())
        self._write()

    def sync(self) -> None:
        """Syncs the appended records to disk, as far as there is space for them."""
        self._write()
        try:
            os.fsync(self._opened.fileno())
        except OSError as error:
            if not is_full(error):
                raise
            # A network file system may report a full disk only now. How much was written is unknown.
            self._opened.truncate(self._synced_size)
            self._waiting = self._unsynced + self._waiting
            self._unsynced = []
            self._warn(error)
            return
        self._synced_size, self._unsynced = os.fstat(self._opened.fileno()).st_size, []

    def close(self) -> None:
        """Writes the waiting records if there is space by now, and closes the file."""
        try:
            self._write()
        finally:
            self._opened.close()

    def _write(self) -> None:
        size = os.fstat(self._opened.fileno()).st_size
        left = b"".join(self._waiting)
        try:
            while left:
                left = left[self._opened.write(left) :]
        except OSError as error:
            if not is_full(error):
                raise
            self._opened.truncate(size)  # leaves no partial line
            self._warn(error)
            return
        self._is_full = False
        self._unsynced += self._waiting
        self._waiting = []

    def _warn(self, error: OSError) -> None:
        if not self._is_full:
            logging.getLogger(__name__).warning("%s: %s; its lines wait in memory", self._path, error.strerror)
        self._is_full = True


def read_metrics(path: str | Path) -> list[Record]:
    """Reads the records of a metrics.jsonl, which need not exist; skips lines that an interruption left incomplete."""
    path = Path(path)
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and "step" in record and "kind" in record:
            records.append(record)
    return records


def _line(record: Record) -> str:
    """Encodes a record as a line of JSON; NaN and infinity, which JSON lacks, become null."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite) + "\n"
