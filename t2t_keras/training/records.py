"""The file metrics.jsonl: one JSON object a line, each with "step" and "kind"."""

import json
import logging
import math
import os
from pathlib import Path
from typing import Any

from t2t_keras.data.writing import is_full, replacing

Record = dict[str, Any]


class RecordFile:
    """Appends records, whole lines only; on a full disk they wait in memory until there is room.

    Args:
        path: the file; made if missing.
        last_step: records of steps after it are dropped, and lines that were not finished.

    Attributes:
        kept: the records that were there before and stayed.
        is_shorter: whether anything was dropped.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, last_step: int) -> None:
        self.kept = [record for record in read_metrics(path) if record["step"] <= last_step]
        lines = "".join(map(_line, self.kept))
        self.is_shorter = path.exists() and path.read_text(encoding="utf-8", errors="replace") != lines
        if self.is_shorter:
            with replacing(path) as file:
                file.write(lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        self._waiting: list[bytes] = []

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.closed

    def append(self, record: Record) -> None:
        """Writes a record, and those that wait; a reader sees them at once."""
        self._waiting.append(_line(record).encode())
        size = os.fstat(self._file.fileno()).st_size
        left = b"".join(self._waiting)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            if not is_full(error):
                raise
            self._file.truncate(size)  # half a line is worse than none
            if len(self._waiting) == 1:
                logging.getLogger(__name__).warning("%s: %s; its lines wait in memory", self._path, error.strerror)
            return
        self._waiting.clear()

    def sync(self) -> None:
        """Makes what was appended survive a power cut, as far as there was room for it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_metrics(path: str | Path) -> list[Record]:
    """The records of a metrics.jsonl; lines that an interruption left unfinished are passed over.

    Args:
        path: the file; it need not exist.

    Returns:
        One dictionary a line, each with "step" and "kind".
    """
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
    """A record as a line of JSON, which has no NaN and no infinity: they become null."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite) + "\n"
