"""Text in the graph: repaired, lowercased and stripped just as `t2t_keras.text.repair` and Python do it."""

import functools
import re
import sys

import numpy as np
import tensorflow as tf

from t2t_keras.text import repair

_REPLACEMENT = 0xFFFD  # what stands for bytes that are no UTF-8

# The only character that becomes two: a capital I with a dot.
_CAPITAL_DOTTED_I = "\u0130"


def repaired(texts: tf.Tensor, lowercase: bool = False) -> tf.Tensor:
    """What `RequestEncoder.repaired` makes of texts; bytes that are no UTF-8 become U+FFFD first.

    Args:
        texts: string, any shape.
        lowercase: whether they are lowercased.

    Returns:
        string, the shape of `texts`: valid UTF-8.
    """
    # Python's decode(errors="replace") puts as many replacements, also for truncated characters and surrogates.
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replacement_char=_REPLACEMENT, replace_control_characters=False
    )
    if lowercase:
        texts = lowercased(texts)
    texts = tf.strings.regex_replace(texts, _re2(repair.UNPRINTABLE), "")
    texts = tf.strings.regex_replace(texts, _re2(repair.BREAK_RUN), " ")
    return tf.strings.regex_replace(texts, "^ +| +$", "")


def stripped(texts: tf.Tensor) -> tf.Tensor:
    """`str.strip()` of texts, of any shape: Python's idea of white space, not that of C."""
    return tf.strings.regex_replace(texts, f"^[{_blanks()}]+|[{_blanks()}]+$", "")


def lowercased(texts: tf.Tensor) -> tf.Tensor:
    """`t2t_keras.text.repair.lowercased` of texts.

    TensorFlow's own `tf.strings.lower` follows the locale of the machine that it runs on.

    Args:
        texts: string, any shape, valid UTF-8.

    Returns:
        string, the shape of `texts`.
    """
    capitals, small = (tf.constant(codes, tf.int32) for codes in _case_pairs())
    flat = tf.strings.regex_replace(tf.reshape(texts, [-1]), _CAPITAL_DOTTED_I, _CAPITAL_DOTTED_I.lower())
    codes = tf.strings.unicode_decode(flat, "UTF-8")  # --> [texts, ragged]
    places = tf.minimum(tf.searchsorted(capitals, codes.flat_values), tf.size(capitals) - 1)
    found = tf.gather(capitals, places) == codes.flat_values
    lower = tf.where(found, tf.gather(small, places), codes.flat_values)
    return tf.reshape(tf.strings.unicode_encode(codes.with_flat_values(lower), "UTF-8"), tf.shape(texts))


@functools.cache
def _blanks() -> str:
    """All of Python's white space, as a pattern writes it."""
    return "".join(f"\\x{{{code:x}}}" for code in range(sys.maxunicode + 1) if chr(code).isspace())


@functools.cache
def _case_pairs() -> tuple[np.ndarray, np.ndarray]:
    """The code points of all characters that change, in order, and what they become."""
    lowered = [(code, chr(code).lower()) for code in range(sys.maxunicode + 1)]
    pairs = [(code, ord(lower)) for code, lower in lowered if len(lower) == 1 and lower != chr(code)]
    capitals, small = np.array(pairs, np.int32).T
    return capitals, small


def _re2(pattern: re.Pattern[str]) -> str:
    """A pattern of Python's as one of RE2's, in which every character that is not plain is written by its number."""
    return "".join(c if " " <= c < "\x7f" else f"\\x{{{ord(c):x}}}" for c in pattern.pattern)
