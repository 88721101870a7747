"""Spans of a text that are masked, as functions of a key: what denoising learns to restore.

Lewis et al., "BART", 2020: about 30 % of the tokens, in spans whose lengths have a Poisson distribution with mean 3;
each span becomes one mask. Spans without a token, which BART has too, are left out, so that no text gets longer.
"""

import hashlib
import math

import numpy as np

_RATE = 0.3  # of the tokens
_MEAN_SPAN = 3.0
_LONGEST_SPAN = 12

_POISSON = [_MEAN_SPAN**n / math.factorial(n) for n in range(1, _LONGEST_SPAN + 1)]
_CUMULATED = np.cumsum(_POISSON) / sum(_POISSON)  # P(length <= n), n from 1
_MEAN = float(np.arange(1, _LONGEST_SPAN + 1) @ np.diff(_CUMULATED, prepend=0.0))
# Where no span goes on one begins with this probability, so that spans take up their share of all tokens.
_BEGIN = _RATE / ((1 - _RATE) * _MEAN + _RATE)


def spans(keys: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws the spans to mask, at least one in each text; the same key, uint64 [texts], and length give the same.

    `lengths`, int [texts], count the units (tokens or words) of each text, at least 1. Returns which units are masked,
    and which of them begin a span, bool [texts, longest] each.
    """
    longest = int(lengths.max(initial=0))
    inside = np.arange(longest) < lengths[:, np.newaxis]  # --> [texts, longest]
    with np.errstate(over="ignore"):
        counters = [keys[:, np.newaxis] + np.arange(n, 2 * longest, 2, dtype=np.uint64) for n in (0, 1)]
    draws, more = ((hashed(each) >> np.uint64(11)) * 2.0**-53 for each in counters)  # in [0, 1)
    sizes = 1 + np.searchsorted(_CUMULATED, more, side="right")
    begins = np.zeros_like(inside)
    masked = np.zeros_like(inside)
    left = np.zeros(len(keys), np.int64)  # units that the span at hand still has
    for place in range(longest):
        begins[:, place] = (left == 0) & (draws[:, place] < _BEGIN) & inside[:, place]
        left = np.where(begins[:, place], sizes[:, place], left)
        masked[:, place] = (left > 0) & inside[:, place]
        left = np.maximum(left - 1, 0)
    without = np.flatnonzero(~begins.any(axis=1))
    lowest = np.where(inside[without], draws[without], 1.0).argmin(axis=1)
    masked[without, lowest] = begins[without, lowest] = True
    return masked, begins


def masked_text(text: str, mask: str) -> str:
    """A text, not empty, with some words masked, or characters if it has no blanks; a function of the text."""
    units = text.split(" ") if " " in text else list(text)
    key = np.frombuffer(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "<u8")
    (masked,), (begins,) = spans(key, np.array([len(units)]))
    kept = [
        f" {mask} " if begin else unit for unit, m, begin in zip(units, masked, begins, strict=True) if begin or not m
    ]
    return " ".join(filter(None, (" " if " " in text else "").join(kept).split(" ")))


def hashed(keys: np.ndarray) -> np.ndarray:
    """SplitMix64: a hash of each key, uint64 of any shape."""
    with np.errstate(over="ignore"):
        mixed = keys + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
