"""Subtitles (.srt and .vtt): the text of each cue."""

import itertools
import re

from t2t_keras.localization.units import Options, Style, Unit, error_at, replacement, text_part

_STYLE = Style(joins="all", line_limit=42)
_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}"
_TIMING = re.compile(rf"(?m)^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\n]*(?:\n|\Z)")
_ANY_TIMING = re.compile(r"(?m)^[ \t]*\d[\d:.,]*[ \t]*-->[^\n]*")
# In .srt, the number of the next cue comes before its timing, and text may contain blank lines. In .vtt, text ends at a
# blank line.
_NEXT_NUMBER = re.compile(r"(?:\A|\n)[ \t]*\d+[ \t]*\n\Z")
_BLANK_LINE = re.compile(r"(?:\A|\n)[ \t]*\n")


def srt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of SubRip subtitles.

    Raises:
        InputError: a timing is not valid, or the file has text but no timing; names the line.
    """
    if text.strip() and not _ANY_TIMING.search(text):
        raise error_at(text, 0, "no timing such as 00:00:01,000 --> 00:00:02,500; is this a .srt file?")
    return _units(text, _NEXT_NUMBER)


def vtt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of WebVTT subtitles; notes, styles and regions stay unchanged.

    Raises:
        InputError: the file does not begin with WEBVTT, or a timing is not valid; names the line.
    """
    if not re.match(r"WEBVTT(?:[ \t\n]|\Z)", text):
        raise error_at(text, 0, "a .vtt file must begin with WEBVTT")
    return _units(text, _BLANK_LINE)


def _units(text: str, end: re.Pattern[str]) -> list[Unit]:
    """Returns the cues of a file; `end` matches after the text of a cue."""
    timings = {match.start(): match for match in _TIMING.finditer(text)}
    for match in _ANY_TIMING.finditer(text):
        if match.start() not in timings:
            raise error_at(text, match.start(), f"not a valid timing: {match[0].strip()[:40]!r}")
    units = []
    for timing, following in itertools.pairwise([*timings.values(), None]):
        assert timing
        start = timing.end()
        cue = text[start : following.start() if following else len(text)]
        after = end.search(cue) if following or end is _BLANK_LINE else None
        cue = cue[: after.start() if after else None].rstrip()
        if cue:
            edits = replacement(start, start + len(cue))
            units.append(Unit(text_part(cue), start, edits, replaces=True, style=_STYLE))
    return units
