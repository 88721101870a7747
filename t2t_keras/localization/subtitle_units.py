"""Subtitles (.srt and .vtt): the text of each cue."""

import itertools
import re

from t2t_keras.localization.units import Options, Style, Unit, faulty, replacement, text_part

_STYLE = Style(joins="all", line_limit=42)
_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}"
_TIMING = re.compile(rf"(?m)^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\n]*(?:\n|\Z)")
_ANY_TIMING = re.compile(r"(?m)^[ \t]*\d[\d:.,]*[ \t]*-->[^\n]*")
# The end of the text before the next timing, or before the end of the file. In .srt, the number of the next cue comes
# first, and text may contain blank lines. In .vtt, text ends at a blank line.
_SRT_END = re.compile(r"\s*(?:(?:\A|\n)[ \t]*\d+[ \t]*\n)?\Z")
_LAST_SRT_END = re.compile(r"\s*\Z")
_VTT_END = re.compile(r"(?:\A|\n)[ \t]*\n|\s*\Z")


def srt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of SubRip subtitles."""
    return _units(text, _SRT_END, _LAST_SRT_END)


def vtt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of WebVTT subtitles; notes, styles and regions stay unchanged.

    Raises:
        InputError: the file does not begin with WEBVTT.
    """
    if not re.match(r"WEBVTT(?:[ \t\n]|\Z)", text):
        raise faulty(text, 0, "a .vtt file must begin with WEBVTT")
    return _units(text, _VTT_END, _VTT_END)


def _units(text: str, end: re.Pattern[str], last_end: re.Pattern[str]) -> list[Unit]:
    """Returns the cues of a file; `end` matches after the text of a cue, and `last_end` after that of the last one."""
    timings = {match.start(): match for match in _TIMING.finditer(text)}
    for match in _ANY_TIMING.finditer(text):
        if match.start() not in timings:
            raise faulty(text, match.start(), f"not a valid timing: {match[0].strip()[:40]!r}")
    units = []
    for timing, following in itertools.pairwise([*timings.values(), None]):
        assert timing
        start, limit = timing.end(), following.start() if following else len(text)
        after = (end if following else last_end).search(text[start:limit])
        cue = text[start:limit][: after.start() if after else None]
        if cue.strip():
            edits = replacement(start, start + len(cue))
            units.append(Unit(text_part(cue), start, edits, replaces=True, style=_STYLE))
    return units
