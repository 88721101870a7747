"""Draws the spans of a text to mask for denoising, as a function of a key.

As in BART, about 30 % of the tokens are masked, in spans whose lengths have a Poisson distribution with mean 3, and
each span is replaced by one mask. Unlike in BART, there are no empty spans, so that no text gets longer.

Reference: Lewis et al., "BART", 2020.
"""

import hashlib
import math

import numpy as np

_RATE = 0.3  # of the tokens
_MEAN_SPAN = 3.0
_LONGEST_SPAN = 12

_POISSON = [_MEAN_SPAN**n / math.factorial(n) for n in range(1, _LONGEST_SPAN + 1)]
_CUMULATIVE = np.cumsum(_POISSON) / sum(_POISSON)  # P(length <= n), n from 1
_MEAN = float(np.arange(1, _LONGEST_SPAN + 1) @ np.diff(_CUMULATIVE, prepend=0.0))
# Probability that a span begins at a token that is not masked yet, so that `_RATE` of all tokens are masked on average.
_BEGIN = _RATE / ((1 - _RATE) * _MEAN + _RATE)


def spans(keys: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws the spans to mask, at least one in each text.

    Args:
        keys: a key for each text, uint64 [texts]; the spans are a function of the key and the length.
        lengths: number of units (tokens, words or characters) of each text, at least 1, int [texts].

    Returns:
        Whether each unit is masked, and whether it begins a span, bool [texts, longest] each.
    """
    longest = int(lengths.max(initial=0))
    is_unit = np.arange(longest) < lengths[:, np.newaxis]  # --> [texts, longest]
    with np.errstate(over="ignore"):
        counters = [keys[:, np.newaxis] + np.arange(n, 2 * longest, 2, dtype=np.uint64) for n in (0, 1)]
    draws, size_draws = ((hashed(each) >> np.uint64(11)) * 2.0**-53 for each in counters)  # in [0, 1)
    sizes = 1 + np.searchsorted(_CUMULATIVE, size_draws, side="right")
    begins = np.zeros_like(is_unit)
    masked = np.zeros_like(is_unit)
    remaining = np.zeros(len(keys), np.int64)  # remaining units of the current span
    for place in range(longest):
        begins[:, place] = (remaining == 0) & (draws[:, place] < _BEGIN) & is_unit[:, place]
        remaining = np.where(begins[:, place], sizes[:, place], remaining)
        masked[:, place] = (remaining > 0) & is_unit[:, place]
        remaining = np.maximum(remaining - 1, 0)
    unmasked_texts = np.flatnonzero(~begins.any(axis=1))
    lowest = np.where(is_unit[unmasked_texts], draws[unmasked_texts], 1.0).argmin(axis=1)
    masked[unmasked_texts, lowest] = begins[unmasked_texts, lowest] = True
    return masked, begins


def masked_text(text: str, mask: str) -> str:
    """Masks words of a non-empty text, or characters if it has no spaces; the spans are a function of the text."""
    units = text.split(" ") if " " in text else list(text)
    key = np.frombuffer(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "<u8")
    (masked,), (begins,) = spans(key, np.array([len(units)]))
    remaining = [
        f" {mask} " if begin else unit for unit, m, begin in zip(units, masked, begins, strict=True) if begin or not m
    ]
    return " ".join(filter(None, (" " if " " in text else "").join(remaining).split(" ")))


def hashed(keys: np.ndarray) -> np.ndarray:
    """Hashes keys, uint64 of any shape, with SplitMix64; returns the same shape and dtype."""
    with np.errstate(over="ignore"):
        bits = keys + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
