"""Repairs text in the same way for training and for translation."""

import re

# Tabs, carriage returns, vertical tabs, form feeds, and Unicode's line and paragraph separators. Readers see a space,
# but tools treat them as line or column breaks.
_BREAKS = "\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
# Invisible: zero-width space, word joiner, byte order mark, soft hyphen, direction marks. U+200C and U+200D (zero-width
# non-joiner and joiner) stay, because the spelling of Persian, Indic scripts and emoji needs them.
_INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
CONTROL = "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"

REPAIRABLE = re.compile(f"[{_BREAKS}{_INVISIBLE}{CONTROL}]|  |^ | $")
BREAK_RUN = re.compile(f"[ {_BREAKS}]+")
UNPRINTABLE = re.compile(f"[{_INVISIBLE}{CONTROL}]")


def repair(text: str) -> str:
    """Puts a text on one line: runs of breaks and spaces become one space, and invisible characters are removed."""
    if not REPAIRABLE.search(text):
        return text
    return BREAK_RUN.sub(" ", UNPRINTABLE.sub("", text)).strip(" ")


def surrogates_joined(text: str) -> str:
    """Replaces surrogate pairs with the characters that they stand for, and half a pair with U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which are not characters, with question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def lowercased(text: str) -> str:
    """Lowercases text character by character, as graphs do; unlike `str.lower`, it does not produce a final sigma."""
    return text.replace("\u03a3", "\u03c3").lower()
