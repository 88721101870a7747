"""Case at the beginning of sentences: lowercases the first word of targets, and capitalises that of outputs.

The patterns mean the same in Python and in RE2, which exported graphs use.

Reference: the script train-truecaser.perl of Moses, https://github.com/moses-smt/mosesdecoder
"""

import collections
import re
from collections.abc import Iterable
from pathlib import Path

from t2t_keras.errors import InputError
from t2t_keras.text.sentences import find_sentences

# Characters that may precede the first word of a sentence. A hyphen counts only if a space follows, unlike the hyphens
# of "--option". Braces do not count, because of placeholders like "{name}".
_FRONT = "(?:[ \u00a0\u202f'\"“”„‟‚‘’«»‹›(\\[¿¡–—•*「『（【]|- )*"
_WITHIN_WORD = "[^ \u00a0\u202f\u3000'\"“”„‟‚‘’«»‹›()\\[\\]{}<>/.,;:!?¿¡…‽–—•*=|、。！？，；：「」『』（）【】-]"
# Groups: the text before the first word, its first character, the rest of the word, and the rest of the text.
BEGINNING = f"^({_FRONT})([^ ])({_WITHIN_WORD}*)(.*)$"

_BEGINNING = re.compile(BEGINNING, re.DOTALL)
_WORD = re.compile(f"{_WITHIN_WORD}+")


class Truecaser:
    """Lowercases the first letter of texts that begin with a word that is usually written in lower case.

    Args:
        words: these words, in lower case.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(words)

    @classmethod
    def learned(cls, texts: Iterable[str], language: str) -> "Truecaser":
        """Learns the words from texts: those that occur more often in lower case than with a capital first letter.

        The first word of each sentence is not counted.

        Args:
            texts: repaired texts.
            language: language code of the texts.
        """
        counts = collections.Counter[str]()
        for text in texts:
            for sentence in find_sentences(text, language):
                beginning = _BEGINNING.match(sentence.text)
                counts.update(_WORD.findall(beginning[4] if beginning else sentence.text))
        return cls(word for word, count in counts.items() if (other := _with_capital(word)) and count > counts[other])

    @classmethod
    def load(cls, path: str | Path) -> "Truecaser":
        """Loads the words from a file; raises an InputError if it cannot be read."""
        try:
            return cls(filter(None, Path(path).read_text(encoding="utf-8").split("\n")))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot read the words to truecase: {error}") from error

    @property
    def serialized(self) -> bytes:
        """The contents of the file: one word per line, sorted."""
        return "".join(f"{word}\n" for word in sorted(self.words)).encode("utf-8")

    def truecased(self, text: str) -> str:
        """Returns a text on one line with its first letter in lower case if the first word is one of the words."""
        beginning = _BEGINNING.match(text)
        if not beginning:
            return text
        front, first, rest, remainder = beginning.groups()
        first = small(first)
        return f"{front}{first}{rest}{remainder}" if first + rest in self.words else text


def capitalised(text: str) -> str:
    """Returns a text on one line with a capital first letter.

    Quotes, opening brackets, dashes, bullets and spaces may precede the letter. Letters whose capital is not
    a single character, such as "ß", stay as they are.
    """
    beginning = _BEGINNING.match(text)
    if not beginning:
        return text
    front, first, rest, remainder = beginning.groups()
    return f"{front}{capital(first)}{rest}{remainder}"


def small(character: str) -> str:
    """Returns the lower case of a capital letter, of which it must be the capital; other characters stay."""
    lower = character.lower()
    return lower if len(lower) == 1 and capital(lower) == character else character


def capital(character: str) -> str:
    """Returns the title case of a character if it is a single character; others stay as they are."""
    title = character.title()
    return title if len(title) == 1 else character


def _with_capital(word: str) -> str:
    """Returns a word with a capital first letter, or "" for a word that does not begin with a small letter."""
    capital_letter = capital(word[0])
    return f"{capital_letter}{word[1:]}" if capital_letter != word[0] and small(capital_letter) == word[0] else ""
