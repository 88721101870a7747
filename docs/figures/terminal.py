"""A recording of a terminal as an SVG file that is animated by its style sheet.

Readers who prefer no motion, and viewers without animated style sheets, see the end of the recording.
"""

import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

SPEED = 20  # times the actual speed
LONGEST, SHORTEST = 1.4, 0.08  # seconds of the longest wait that is shown, and of the shortest frame
BEGINNING, END = 1.2, 8.0  # seconds before the first line, and with the last one
_LETTER, _LINE, _EDGE, _BAR = 7.2, 17, 14, 28  # pixels: width of a letter, between lines, around them, above them
_CODES = re.compile(r"\x1b\[[\d;?]*([A-Za-z])|([\r\n\b])|([^\x1b\r\n\b]+)")
_STYLE = (
    "text{{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}}"
    ".quiet{{fill:#a9b4c0}}.t{{visibility:hidden}}.s{{transform:translateY({end}px)}}"
    "@media (prefers-reduced-motion:no-preference){{.t,.p,.s{{animation-duration:{seconds:.2f}s;"
    "animation-timing-function:step-end;animation-iteration-count:infinite}}}}"
)


class State(NamedTuple):
    """The text of a row of the terminal from a time on, in seconds."""

    since: float
    text: str


class Screen:
    """The history of an endless terminal with a number of columns: a list of states for each row."""

    def __init__(self, columns: int) -> None:
        self.rows: list[list[State]] = [[]]
        self._columns = columns
        self._place = 0, 0  # row and column of the cursor

    def print(self, when: float, text: str) -> None:
        """Prints text at a time; colours are ignored."""
        for code, control, words in _CODES.findall(text):
            row, column = self._place
            if control or code:
                column = {"\r": 0, "\b": max(column - 1, 0)}.get(control, column)
                row = max(row + (control == "\n") - (code == "A"), 0)
                self._place = row, column
                if code == "K":
                    self._write(when, self._text(row)[:column])
            for character in words:
                self._put(when, character)

    def _put(self, when: float, character: str) -> None:
        row, column = self._place
        if column == self._columns:
            row, column = row + 1, 0
        self._place = row, column
        text = self._text(row).ljust(column)
        self._write(when, text[:column] + character + text[column + 1 :])
        self._place = row, column + 1

    def _text(self, row: int) -> str:
        self.rows += [[] for _ in range(row + 1 - len(self.rows))]
        return self.rows[row][-1].text if self.rows[row] else ""

    def _write(self, when: float, text: str) -> None:
        states = self.rows[self._place[0]]
        if states and states[-1].since == when:
            states.pop()
        states.append(State(when, text))


class Frames:
    """The times at which the picture changes: in the recording, and in the film, in seconds."""

    def __init__(self, times: Iterable[float]) -> None:
        self.real, self.shown = [0.0], [0.0]
        now, before = BEGINNING, 0.0
        for time in sorted(set(times)):
            now += min((time - before) / SPEED, LONGEST)
            before = time
            if now - self.shown[-1] < SHORTEST:
                self.real[-1] = time  # the last state of several that are too close to be seen
            else:
                self.real.append(time)
                self.shown.append(now)
        self.seconds = now + END

    def number(self, time: float) -> int:
        """Returns the number of the first frame that shows the output of a time."""
        return next(number for number, real in enumerate(self.real) if real >= time)

    def percent(self, number: int) -> str:
        """Returns the start of a frame in percent of the film."""
        return f"{100 * self.shown[number] / self.seconds:.2f}%"


def read_cast(path: Path) -> tuple[dict, list[tuple[float, str]]]:
    """Returns the head and the output with times in seconds, from an asciicast 2 file."""
    head, *events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return head, [(when, text) for when, kind, text in events if kind == "o"]


def recording(path: Path, rows_shown: int = 26) -> str:
    """Returns the text of an SVG file with the output of a command, from an asciicast 2 file."""
    head, events = read_cast(path)
    screen = Screen(head["width"])
    for when, text in events:
        screen.print(when, text)
    frames = Frames(state.since for row in screen.rows for state in row)
    rules = _Rules(frames)
    parts = [_line(0, f"$ {head['command']}")]
    first_frames = [0]  # the frame in which each row begins
    for place, row in enumerate(screen.rows, 1):
        states = _seen(row, frames)
        first_frames.append(max(first_frames[-1], states[0][0] if states else 0))
        for number, (since, text) in enumerate(states):
            until = states[number + 1][0] if number + 1 < len(states) else None
            if text.strip():
                parts.append(_line(place, text.rstrip(), rules.shown(since, until)))
    if not screen.rows[-1]:
        first_frames.pop()
    shifts = [-_LINE * max(0, bisect_right(first_frames, number) - rows_shown) for number in range(len(frames.shown))]
    clock = _clock(frames, rules, 2 * _EDGE + head["width"] * _LETTER)
    style = _STYLE.format(end=shifts[-1], seconds=frames.seconds) + rules.moves(shifts) + rules.texts()
    title = f"What {head['command']} prints in a terminal"
    return _file((head["width"], rows_shown), title, style, clock, parts)


def _seen(row: Sequence[State], frames: Frames) -> list[tuple[int, str]]:
    """Returns the frames in which a row's states begin, without states that no frame shows."""
    numbers = {frames.number(state.since): state.text for state in row}  # the last state of each frame
    return sorted(numbers.items())


class _Rules:
    """The rules of the style sheet, which show and hide parts."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._texts: dict[str, str] = {}

    def shown(self, since: int, until: int | None) -> str:
        """Returns the attributes of a part that is shown from a frame on, until another one or to the end."""
        name = f"f{since}" if until is None else f"f{since}_{until}"
        hidden, visible = "{visibility:hidden}", "{visibility:visible}"
        times = f"0%{hidden}{self._frames.percent(since)}{visible}" if since else f"0%{visible}"
        times += "" if until is None else f"{self._frames.percent(until)}{hidden}"
        self._texts[name] = f"@keyframes {name}{{{times}}}"
        return f' class="{"p" if until is None else "t"}" style="animation-name:{name}"'

    def moves(self, shifts: Sequence[int]) -> str:
        """Adds the rule that moves the lines up, given their shift in each frame in pixels."""
        times = "".join(
            f"{self._frames.percent(number)}{{transform:translateY({shift}px)}}"
            for number, shift in enumerate(shifts)
            if not number or shift != shifts[number - 1]
        )
        return f"@keyframes s{{{times}}}"

    def texts(self) -> str:
        """Returns all rules."""
        return "".join(self._texts.values())


def _clock(frames: Frames, rules: _Rules, right: float) -> list[str]:
    """Draws the actual time since the start."""
    parts, since = [], 0
    texts = [f"{int(real) // 60}:{int(real) % 60:02}" for real in frames.real]
    for number, text in enumerate(texts):
        after = number + 1
        if after == len(texts) or texts[after] != text:
            shown = rules.shown(since, None if after == len(texts) else after)
            parts.append(f'<text x="{right - _EDGE:g}" y="18" text-anchor="end"{shown}>{text}</text>')
            since = after
    return parts


def _line(place: int, text: str, attributes: str = "") -> str:
    """Returns a row's words with their width, because fonts have bars of other widths than letters."""
    width = f'textLength="{len(text) * _LETTER:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text y="{_LINE * place + 13}" {width}{attributes}>{html.escape(text, quote=False)}</text>'


def _file(size: tuple[int, int], title: str, style: str, clock: Sequence[str], lines: Sequence[str]) -> str:
    """Draws a dark window of a number of columns and rows with a title bar; its border separates it from any page."""
    columns, rows = size
    inner, below = columns * _LETTER, rows * _LINE
    width, height = inner + 2 * _EDGE, below + _BAR + 1.5 * _EDGE
    place = f'x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}"'
    above = f"{SPEED} times as fast, and waits are cut; time since the start:"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{style}</style>",
            f'<rect {place} rx="8" fill="#15191f" stroke="#6e7781"/>',
            f'<path d="M1,{_BAR}H{width - 1:g}" stroke="#6e7781"/>',
            f'<text x="{_EDGE}" y="18" class="quiet">{above}</text>',
            *clock,
            f'<svg x="{_EDGE}" y="{_BAR + _EDGE / 2:g}" width="{inner:g}" height="{below}">',
            '<g class="s" style="animation-name:s">',
            *lines,
            "</g></svg></svg>\n",
        ]
    )
