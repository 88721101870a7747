"""Repairs, lowercases and strips text in the graph, exactly as `t2t_keras.text.repair` and Python do."""

import functools
import sys
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_keras.text import repair

_REPLACEMENT = 0xFFFD  # replaces invalid UTF-8

# The capital I with a dot, the only character whose lowercase form has two characters.
_CAPITAL_DOTTED_I = "\u0130"


def repaired(texts: tf.Tensor, lowercase: bool = False) -> tf.Tensor:
    """Repairs texts of any shape as `RequestEncoder.repaired` does, after replacing invalid UTF-8 by U+FFFD."""
    return on_one_line(printable(texts), lowercase)


def on_one_line(texts: tf.Tensor, lowercase: bool) -> tf.Tensor:
    """Applies the remaining steps of `repaired` to the results of `printable`, of any shape."""
    if lowercase:
        texts = lowercased(texts)
    texts = tf.strings.regex_replace(texts, re2(repair.BREAK_RUN.pattern), " ")
    return tf.strings.regex_replace(texts, "^ +| +$", "")


def printable(texts: tf.Tensor) -> tf.Tensor:
    """Removes invisible characters from texts of any shape, after replacing invalid UTF-8 by U+FFFD."""
    # The number of replacements equals that of Python's decode(errors="replace"), even for truncated characters and
    # surrogates.
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=_REPLACEMENT, replace_control_characters=False
    )
    return tf.strings.regex_replace(texts, re2(repair.UNPRINTABLE.pattern), "")


def stripped(texts: tf.Tensor) -> tf.Tensor:
    """Applies `str.strip()` to texts of any shape, with Python's definition of white space, not C's."""
    return tf.strings.regex_replace(texts, f"^[{_blanks()}]+|[{_blanks()}]+$", "")


def lowercased(texts: tf.Tensor) -> tf.Tensor:
    """Applies `t2t_keras.text.repair.lowercased` to valid UTF-8 of any shape.

    `tf.strings.lower` cannot do this, because its result depends on the locale.
    """
    texts = tf.strings.regex_replace(texts, _CAPITAL_DOTTED_I, _CAPITAL_DOTTED_I.lower())
    return with_characters(texts, str.lower)


def with_characters(texts: tf.Tensor, replacement: Callable[[str], str]) -> tf.Tensor:
    """Replaces the characters of texts of any shape, except those whose replacement is not a single character."""
    old, new = (tf.constant(codes, tf.int32) for codes in _pairs(replacement))
    codes = tf.strings.unicode_decode(tf.reshape(texts, [-1]), "UTF-8")  # --> [texts, ragged]
    places = tf.minimum(tf.searchsorted(old, codes.flat_values), tf.size(old) - 1)
    is_replaced = tf.gather(old, places) == codes.flat_values
    new_codes = tf.where(is_replaced, tf.gather(new, places), codes.flat_values)
    return tf.reshape(tf.strings.unicode_encode(codes.with_flat_values(new_codes), "UTF-8"), tf.shape(texts))


@functools.cache
def _blanks() -> str:
    """Returns all characters that Python considers white space, escaped for a regular expression."""
    return "".join(f"\\x{{{code:x}}}" for code in range(sys.maxunicode + 1) if chr(code).isspace())


@functools.cache
def _pairs(replacement: Callable[[str], str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the code points of all characters with a different, single replacement, and those of the replacements.

    Both arrays are int32; the first is in ascending order.
    """
    replacements = [(code, replacement(chr(code))) for code in range(sys.maxunicode + 1)]
    pairs = [(code, ord(new)) for code, new in replacements if len(new) == 1 and new != chr(code)]
    old, new = np.array(pairs, np.int32).T
    return old, new


def re2(pattern: str) -> str:
    """Converts a Python pattern to RE2 by writing all but printable ASCII characters as code points."""
    return "".join(c if " " <= c < "\x7f" else f"\\x{{{ord(c):x}}}" for c in pattern)
