"""Subtitles (.srt and .vtt): the text of each cue."""

import re

from t2t_keras.localization.units import Options, Style, Unit, faulty, replacement, text_part

_STYLE = Style(joins="all", line_limit=42)
_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}"
_TIMING = re.compile(rf"(?m)^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\n]*(?:\n|\Z)")
_ANY_TIMING = re.compile(r"(?m)^[ \t]*\d[\d:.,]*[ \t]*-->[^\n]*")
# Text ends at a blank line. In .srt, text may contain blank lines if no number and timing follow.
_BLANK = re.compile(r"\n[ \t]*(?=\n|\Z)")
_NEXT_CUE = re.compile(rf"\n\s*\n\s*\d+[ \t]*\n[ \t]*{_TIME}[ \t]*-->|\s*\Z")


def srt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of SubRip subtitles."""
    return _units(text, _NEXT_CUE)


def vtt_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of WebVTT subtitles; notes, styles and regions stay unchanged.

    Raises:
        InputError: the file does not begin with WEBVTT.
    """
    if not re.match(r"WEBVTT(?:[ \t\n]|\Z)", text):
        raise faulty(text, 0, "a .vtt file must begin with WEBVTT")
    return _units(text, _BLANK)


def _units(text: str, end: re.Pattern[str]) -> list[Unit]:
    timings = {match.start(): match for match in _TIMING.finditer(text)}
    for match in _ANY_TIMING.finditer(text):
        if match.start() not in timings:
            raise faulty(text, match.start(), f"not a valid timing: {match[0].strip()[:40]!r}")
    units = []
    for timing in timings.values():
        start = timing.end()
        after = end.search(text, start - 1)
        stop = after.start() if after else len(text)
        cue = text[start:stop]
        if cue.strip():
            units.append(Unit(text_part(cue), start, replacement(start, stop), replaces=True, style=_STYLE))
    return units
