"""Reads and writes metrics.jsonl: one JSON object per line, each with "step" and "kind"."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

from t2t_keras.errors import explained
from t2t_keras.machine.files import replacing

Record = dict[str, Any]


class RecordFile:
    """Appends records as whole lines.

    Args:
        path: the file, which need not exist.
        last_step: `open` drops the records of later steps, and incomplete lines.
        last_validation: the last step whose record of a validation is kept; None means `last_step`.

    Attributes:
        records: existing records that `open` keeps.
        is_shorter: whether `open` drops anything.
    """

    def __init__(self, path: Path, last_step: int, last_validation: int | None = None) -> None:
        last = {"valid": last_step if last_validation is None else last_validation}
        self.records = [
            record for record in read_metrics(path) if record["step"] <= last.get(record["kind"], last_step)
        ]
        self._lines = "".join(map(_line, self.records))
        self.is_shorter = path.exists() and path.read_text(encoding="utf-8", errors="replace") != self._lines
        self._path = path
        self._file: io.FileIO | None = None

    def open(self) -> None:
        """Drops stale lines and opens the file for appending; raises an OSError if it cannot be written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self.is_shorter:
            with replacing(self._path) as file:
                file.write(self._lines)
        self._file = io.FileIO(self._path, "ab")

    @property
    def is_closed(self) -> bool:
        return self._file is None or self._file.closed

    @property
    def _stream(self) -> io.FileIO:
        if self._file is None:
            raise ValueError("open() must be called before records are written")
        return self._file

    def append(self, record: Record) -> None:
        """Writes a record, which readers see at once; raises an InputError if it cannot be written."""
        with explained(f"{self._path} cannot be written"):
            size = os.fstat(self._stream.fileno()).st_size
            rest = _line(record).encode()
            try:
                while rest:
                    rest = rest[self._stream.write(rest) :]
            except OSError:
                self._stream.truncate(size)  # leaves no partial line
                raise

    def sync(self) -> None:
        """Syncs the records to disk; raises an InputError if that fails."""
        with explained(f"{self._path} cannot be written"):
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


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
