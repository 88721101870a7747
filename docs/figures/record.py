"""Runs a command in a terminal of 100 columns and writes what it prints, with the times, as an asciicast 2 file.

`python docs/figures/record.py docs/figures/quickstart.cast python -m launch.quickstart` makes the recording that
`draw.py` draws. Of a line that is written over and over, such as a progress bar, one state a second is kept.
"""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import shlex
import struct
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

COLUMNS, ROWS = 100, 30
_SECONDS_OF_A_STATE = 1.0

Event = tuple[float, str]  # seconds since the start, and what was printed


def printed(command: Sequence[str]) -> Iterator[Event]:
    """What a command prints, when it does; a `RuntimeError` if it fails."""
    begun = time.monotonic()
    process, terminal = pty.fork()
    if not process:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvp(command[0], command)
    decoder = codecs.getincrementaldecoder("utf-8")()
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as output:  # an OSError at the end
        while block := output.read(65536):
            yield time.monotonic() - begun, decoder.decode(block)
    if status := os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise RuntimeError(f"{shlex.join(command)}: exit status {status}")


def thinned(events: Iterable[Event]) -> list[Event]:
    """One state a second of lines that are written over, and the last one; whole lines all stay.

    Blanks that erase a line are kept: the carriage return behind them is shorter, and writes over nothing.
    """
    kept: list[Event] = []
    begun = 0.0  # the second of the state that is last so far
    for when, text in events:
        last = kept[-1][1] if kept else ""
        over = text.startswith("\r") and last.startswith("\r") and "\n" not in last + text and len(text) >= len(last)
        if over and when - begun < _SECONDS_OF_A_STATE:
            kept[-1] = when, text
        else:
            kept.append((when, text))
            begun = when
    return kept


def main(path: str, *command: str) -> None:
    """Writes the file."""
    events = thinned(printed(command))
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "command": shlex.join(command)}
    lines = [json.dumps(head), *(json.dumps([round(when, 2), "o", text], ensure_ascii=False) for when, text in events)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
