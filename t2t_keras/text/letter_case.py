"""Text in capitals and in title case: recognises it, returns its ordinary form, and restores its case."""

import re
from collections.abc import Callable
from typing import Literal

from t2t_keras.text.language_codes import base_language
from t2t_keras.text.truecase import capital

Case = Literal["capitals", "title"]

_LETTERS = r"(?:[^\W\d_][\u0300-\u036f]*)+"  # with the accents of decomposed letters
_WORD = re.compile(f"{_LETTERS}(?:['’]{_LETTERS})*")
# Shorter words, such as "of" and "und", may be in lower case within a title.
_MIN_TITLE_LETTERS = 4
_MIN_TITLE_WORDS = 3
# If the model does not know the case of a text, the text has at least this many times the tokens of its ordinary form.
# Words in a case that the vocabulary was trained on have about as many tokens as in lower case.
_UNKNOWN_RATIO = 1.25
_ENGLISH_I = re.compile(r"\bi\b(?!\.)")
# Languages that write nouns with a capital first letter, so that an ordinary text can look like a title.
_CAPITALISED_NOUNS = ("de", "lb")
# Languages in which "İ" is the capital of "i", and "I" is the capital of "ı".
_DOTTED_CAPITALS = ("az", "tr")


def case_of(text: str, language: str) -> Case | None:
    """Returns "capitals" if all letters are capitals, "title" if the text is in title case, else None.

    In a title, the first word and all long words begin with a capital. A title has at least three words, and a German
    text is never one. Letters without case are ignored.
    """
    words = [word for word in _WORD.findall(text) if word.lower() != word.upper()]
    num_letters = sum(map(str.isalpha, "".join(words)))
    if num_letters > 1 and all(word == word.upper() for word in words):
        return "capitals"
    long_words = [word for word in words if len(word) >= _MIN_TITLE_LETTERS]
    if base_language(language) in _CAPITALISED_NOUNS or len(words) < _MIN_TITLE_WORDS or len(long_words) < 2:
        return None
    is_title = all(map(_is_capitalised, [words[0], *long_words]))
    return "title" if is_title and not all(word == word.upper() for word in long_words) else None


def _is_capitalised(word: str) -> bool:
    return word[0] != word[0].lower()


def ordinary(text: str, language: str) -> str:
    """Returns a sentence in lower case with a capital first letter; in English, "I" also stays a capital."""
    base = base_language(language)
    text = text.replace("I", "ı") if base in _DOTTED_CAPITALS else text
    text = text.replace("İ", "i").lower()  # otherwise, "İ" would become two characters
    if base == "en":
        text = _ENGLISH_I.sub("I", text)
    first = _WORD.search(text)
    return text if not first else text[: first.start()] + _capital(first[0][0], base) + text[first.start() + 1 :]


def _capital(letter: str, language: str) -> str:
    return "İ" if letter == "i" and language in _DOTTED_CAPITALS else capital(letter)


def is_unfamiliar(text: str, plain: str, num_tokens: Callable[[str], int]) -> bool:
    """Returns whether a model does not know the case of a text, but knows its ordinary form.

    A case that the training text lacks is spelled with many short tokens. A single word counts as known in ordinary
    form only if it is one token there or in lower case, because other words in capitals, such as "NASA", may be names.

    Args:
        text: the text.
        plain: its ordinary form.
        num_tokens: returns the number of tokens of a text.
    """
    if len(words := _WORD.findall(text)) == 1:
        word = words[0]
        is_known = min(num_tokens(word.lower()), num_tokens(word.capitalize())) == 1
        return is_known and num_tokens(word) > 1
    return num_tokens(text) >= _UNKNOWN_RATIO * num_tokens(plain)


def in_case(text: str, case: Case, source: str, language: str) -> str:
    """Returns a translation in a case of its source.

    In a title, short words get a capital only if all words of the source have one.

    Args:
        text: the translation.
        case: the case.
        source: the source in this case.
        language: language code of the translation.
    """
    base = base_language(language)
    if case == "capitals":
        return (text.replace("i", "İ") if base in _DOTTED_CAPITALS else text).upper()
    is_everywhere = all(map(_is_capitalised, _WORD.findall(source)))

    def spelled(match: re.Match[str]) -> str:
        word = match[0]
        is_capital = is_everywhere or len(word) >= _MIN_TITLE_LETTERS or not match.start()
        return _capital(word[0], base) + word[1:] if is_capital else word

    return _WORD.sub(spelled, text)
