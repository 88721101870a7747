"""Writes figures into files that depend on nothing but what is drawn."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

from t2t_keras.machine.files import replacing

_DPI = 100
# Text of an SVG file stays text, which can be searched and which the reader's own fonts complete.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "t2t_keras"}
_NOTHING_OF_TODAY = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def save(figure: Figure, path: str | Path) -> None:
    """Writes a PNG or SVG file, as the path's end says; the same figure gives the same file.

    Characters that the font does not have (see `missing_characters`) become boxes in PNG and stay text in SVG. A
    ValueError says that the path has another end.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _NOTHING_OF_TODAY:
        raise ValueError(f"path must end in {' or '.join(f'.{name}' for name in _NOTHING_OF_TODAY)}, got {str(path)!r}")
    with replacing(path, "wb") as file, matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(file, format=kind, dpi=_DPI, bbox_inches="tight", metadata=_NOTHING_OF_TODAY[kind])


def missing_characters(texts: Iterable[str]) -> str:
    """The characters, in order, that the font of the pictures does not have."""
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    return "".join(sorted(character for character in set("".join(texts)) if not font.get_char_index(ord(character))))
