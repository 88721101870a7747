"""Runs a command in a terminal of 100 columns and writes its output with times as an asciicast 2 file.

`python docs/figures/record.py docs/figures/quickstart.cast python -m launch.quickstart` makes the recording that
`draw.py` draws. Of a line that is overwritten, such as a progress bar, it keeps one state per second.
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

Event = tuple[float, str]  # seconds since the start, and the output


def run_and_record(command: Sequence[str]) -> Iterator[Event]:
    """Yields the output of a command with times. Raises RuntimeError if the command fails."""
    start = time.monotonic()
    process, terminal = pty.fork()
    if not process:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvp(command[0], command)
    decoder = codecs.getincrementaldecoder("utf-8")()
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as output:  # an OSError at the end
        while block := output.read(65536):
            yield time.monotonic() - start, decoder.decode(block)
    if status := os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise RuntimeError(f"{shlex.join(command)}: exit status {status}")


def thinned(events: Iterable[Event]) -> list[Event]:
    """Keeps one state per second of lines that are overwritten, and the last state; complete lines are all kept.

    Blanks that erase a line are kept, since the shorter text after the carriage return does not overwrite them.
    """
    thinned_events: list[Event] = []
    start = 0.0  # the second of the last state
    for when, text in events:
        last = thinned_events[-1][1] if thinned_events else ""
        over = text.startswith("\r") and last.startswith("\r") and "\n" not in last + text and len(text) >= len(last)
        if over and when - start < _SECONDS_OF_A_STATE:
            thinned_events[-1] = when, text
        else:
            thinned_events.append((when, text))
            start = when
    return thinned_events


def main(path: str, *command: str) -> None:
    """Writes the recording."""
    events = thinned(run_and_record(command))
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "command": shlex.join(command)}
    lines = [json.dumps(head), *(json.dumps([round(when, 2), "o", text], ensure_ascii=False) for when, text in events)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
