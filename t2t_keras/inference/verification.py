"""Checks that translations do not depend on their batch, by translating a sample of the lines again, one by one."""

import random
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from t2t_keras.inference.translation import Translation

if TYPE_CHECKING:
    from t2t_keras.inference.request import Request
    from t2t_keras.inference.translator import Translator

_TOLERANCE = 1e-4

Item = tuple[int, "str | Request", Translation]


class Sample:
    """A uniform random sample of `size` translated lines, which is the same in every run."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: list[Item] = []
        self._seen = 0
        self._random = random.Random(1)

    def add(self, items: Iterable[Item]) -> None:
        """Offers lines to the sample; an item is a line's number, its request and its translation."""
        for item in items if self._size else ():
            self._seen += 1
            if len(self._kept) < self._size:
                self._kept.append(item)
            elif (place := self._random.randrange(self._seen)) < self._size:
                self._kept[place] = item

    def verify(self, translator: "Translator") -> bool:
        """Translates each line of the sample separately, prints those that differ, and returns whether all agree."""
        differing = 0
        for number, request, before in sorted(self._kept, key=lambda item: item[0]):
            (alone,) = translator.translate([request])
            # A line's score is summed over its parts, each of which may differ by the tolerance.
            close = abs(alone.score - before.score) <= _TOLERANCE * max(1, before.num_parts)
            if alone.text == before.text and close:
                continue
            differing += 1
            print(
                f"verify: line {number} gave {before.text!r} ({before.score:.6f}), "
                f"alone {alone.text!r} ({alone.score:.6f})",
                file=sys.stderr,
            )
        count = len(self._kept)
        print(f"verify: {count - differing} of {count} lines agree with their translation alone", file=sys.stderr)
        return not differing
