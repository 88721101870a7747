"""The characters of the training text, by which a translator recognises characters that its model never read."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from t2t_keras.errors import InputError


def character_class(characters: Iterable[str]) -> str:
    """Returns the contents of a character class, for Python and RE2, that matches the given characters."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, set(characters))):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    ends = ([re.escape(chr(code)) for code in each] for each in ranges)
    return "".join(first if first == last else f"{first}-{last}" for first, last in ends)


class Characters(NamedTuple):
    """The characters that occur in the training text.

    Attributes:
        source: characters of the sources.
        target: characters of the targets.
    """

    source: frozenset[str]
    target: frozenset[str]

    @classmethod
    def learned(cls, sources: Iterable[str], targets: Iterable[str]) -> "Characters":
        """Collects the characters of repaired texts."""
        sides = []
        for texts in (sources, targets):
            characters: set[str] = set()
            for text in texts:
                characters.update(text)
            sides.append(frozenset(characters))
        return cls(*sides)

    @classmethod
    def load(cls, path: str | Path) -> "Characters":
        """Loads the characters from a file; raises an InputError if it cannot be read."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(*(frozenset(values[name]) for name in cls._fields))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: cannot read the characters of the training text: {error}") from error

    @property
    def serialized(self) -> bytes:
        """The contents of the file: a JSON object with a string of sorted characters for each side."""
        sides = {name: "".join(sorted(side)) for name, side in self._asdict().items()}
        return (json.dumps(sides, ensure_ascii=False, indent=0) + "\n").encode("utf-8")

    def union(self, other: "Characters") -> "Characters":
        """Returns the characters that occur in either text."""
        return Characters(self.source | other.source, self.target | other.target)
