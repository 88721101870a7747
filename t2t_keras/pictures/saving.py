"""Writes figures to PNG and SVG files; equal figures produce equal files."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

from t2t_keras.machine.files import replacing

_DPI = 100
# Text in SVG files stays text, so that it can be searched and rendered with the reader's fonts.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "t2t_keras"}
_FIXED_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure as a PNG or SVG file, according to the extension of the path.

    Characters that the font lacks (see `missing_characters`) become boxes in PNG files and remain text in SVG files.

    Raises:
        ValueError: the path has a different extension.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in _FIXED_METADATA:
        raise ValueError(f"path must end in {' or '.join(f'.{name}' for name in _FIXED_METADATA)}, got {str(path)!r}")
    with replacing(path, "wb") as file, matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(file, format=kind, dpi=_DPI, bbox_inches="tight", metadata=_FIXED_METADATA[kind])


def missing_characters(texts: Iterable[str]) -> str:
    """Returns the distinct characters of the texts that the font of the figures lacks, sorted by code point."""
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    return "".join(sorted(character for character in set("".join(texts)) if not font.get_char_index(ord(character))))
