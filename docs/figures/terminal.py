"""A recording of a terminal as an SVG file that moves by its style sheet alone.

Where motion is not wanted, and where style sheets are not animated, it shows how the recording ends.
"""

import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

SPEED = 20  # times as fast as it was
LONGEST, SHORTEST = 1.4, 0.08  # seconds of a wait that is shown, and of a frame
BEGINNING, END = 1.2, 8.0  # seconds before the first line, and with the last one
_LETTER, _LINE, _EDGE, _BAR = 7.2, 17, 14, 28  # pixels: of a letter, between lines, around them, above them
_CODES = re.compile(r"\x1b\[[\d;?]*([A-Za-z])|([\r\n\b])|([^\x1b\r\n\b]+)")
_STYLE = (
    "text{{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}}"
    ".quiet{{fill:#a9b4c0}}.t{{visibility:hidden}}.s{{transform:translateY({end}px)}}"
    "@media (prefers-reduced-motion:no-preference){{.t,.p,.s{{animation-duration:{seconds:.2f}s;"
    "animation-timing-function:step-end;animation-iteration-count:infinite}}}}"
)


class State(NamedTuple):
    """What a row of the terminal shows from a time on, in seconds."""

    since: float
    text: str


class Screen:
    """What a terminal of so many columns has shown, without an end above: a list of states for each row."""

    def __init__(self, columns: int) -> None:
        self.rows: list[list[State]] = [[]]
        self._columns = columns
        self._place = 0, 0  # row and column of the cursor

    def print(self, when: float, text: str) -> None:
        """Shows what was printed at a time; colours are left out."""
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
    """The times at which the picture changes: those of the recording, and when they are shown, in seconds."""

    def __init__(self, times: Iterable[float]) -> None:
        self.real, self.shown = [0.0], [0.0]
        now, before = BEGINNING, 0.0
        for time in sorted(set(times)):
            now += min((time - before) / SPEED, LONGEST)
            before = time
            if now - self.shown[-1] < SHORTEST:
                self.real[-1] = time  # the last of several that are too near to be seen one by one
            else:
                self.real.append(time)
                self.shown.append(now)
        self.seconds = now + END

    def number(self, time: float) -> int:
        """Of the frame that is the first to show what came at a time."""
        return next(number for number, real in enumerate(self.real) if real >= time)

    def percent(self, number: int) -> str:
        """When a frame begins, as a share of the whole."""
        return f"{100 * self.shown[number] / self.seconds:.2f}%"


def read_cast(path: Path) -> tuple[dict, list[tuple[float, str]]]:
    """The head and what was printed, with times in seconds, of an asciicast 2 file."""
    head, *events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return head, [(when, text) for when, kind, text in events if kind == "o"]


def recording(path: Path, rows_shown: int = 26) -> str:
    """The text of an SVG file with what a command printed, from an asciicast 2 file."""
    head, events = read_cast(path)
    screen = Screen(head["width"])
    for when, text in events:
        screen.print(when, text)
    frames = Frames(state.since for row in screen.rows for state in row)
    rules = _Rules(frames)
    parts = [_line(0, f"$ {head['command']}")]
    begun = [0]  # the frame in which each row begins
    for place, row in enumerate(screen.rows, 1):
        states = _seen(row, frames)
        begun.append(max(begun[-1], states[0][0] if states else 0))
        for number, (since, text) in enumerate(states):
            until = states[number + 1][0] if number + 1 < len(states) else None
            if text.strip():
                parts.append(_line(place, text.rstrip(), rules.shown(since, until)))
    if not screen.rows[-1]:
        begun.pop()
    shifts = [-_LINE * max(0, bisect_right(begun, number) - rows_shown) for number in range(len(frames.shown))]
    clock = _clock(frames, rules, 2 * _EDGE + head["width"] * _LETTER)
    style = _STYLE.format(end=shifts[-1], seconds=frames.seconds) + rules.moves(shifts) + rules.texts()
    title = f"What {head['command']} prints in a terminal"
    return _file((head["width"], rows_shown), title, style, clock, parts)


def _seen(row: Sequence[State], frames: Frames) -> list[tuple[int, str]]:
    """The frames in which a row's states begin, without those that no frame shows."""
    numbers = {frames.number(state.since): state.text for state in row}  # the last state of each frame
    return sorted(numbers.items())


class _Rules:
    """The style sheet's rules of what is shown when."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._texts: dict[str, str] = {}

    def shown(self, since: int, until: int | None) -> str:
        """The attributes of what is shown from a frame on, until before another one or to the end."""
        name = f"f{since}" if until is None else f"f{since}_{until}"
        hidden, visible = "{visibility:hidden}", "{visibility:visible}"
        times = f"0%{hidden}{self._frames.percent(since)}{visible}" if since else f"0%{visible}"
        times += "" if until is None else f"{self._frames.percent(until)}{hidden}"
        self._texts[name] = f"@keyframes {name}{{{times}}}"
        return f' class="{"p" if until is None else "t"}" style="animation-name:{name}"'

    def moves(self, shifts: Sequence[int]) -> str:
        """The rule by which the lines move up, from their shift in each frame in pixels."""
        times = "".join(
            f"{self._frames.percent(number)}{{transform:translateY({shift}px)}}"
            for number, shift in enumerate(shifts)
            if not number or shift != shifts[number - 1]
        )
        return f"@keyframes s{{{times}}}"

    def texts(self) -> str:
        """All rules of what is shown."""
        return "".join(self._texts.values())


def _clock(frames: Frames, rules: _Rules, right: float) -> list[str]:
    """The time since the start, as it was."""
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
    """A row's words; their width is given, because fonts have bars of other widths than letters."""
    width = f'textLength="{len(text) * _LETTER:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text y="{_LINE * place + 13}" {width}{attributes}>{html.escape(text, quote=False)}</text>'


def _file(size: tuple[int, int], title: str, style: str, clock: Sequence[str], lines: Sequence[str]) -> str:
    """A window of so many columns and rows, with a line above it; dark, with a border, on any page."""
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
