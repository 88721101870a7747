"""Finds the sentences of a text by rules that are regular expressions for Python and for RE2, which graphs have."""

import functools
import re
from typing import NamedTuple

from t2t_keras.text.repair import UNPRINTABLE
from t2t_keras.text.sentence_tables import OTHER_LANGUAGES, TABLES, Table

# Stands between sentences; the other one, where no later rule may take it away. Text has lost both characters by then.
BOUNDARY, _SETTLED = "\x01", "\x02"

_BREAKS = "\n\v\f\r\x1c-\x1e\x85\u2028\u2029"  # for some tool at least
_BLANKS = f" \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000{_BREAKS}"

WHITE_SPACE = f"[{_BLANKS}]"

# Insides of character classes.
_FINAL = ".!?…‽؟۔।॥։።။\u037e"
_FINAL_ALONE = "。！？｡"  # needs no blank behind it
_CLOSING = "'\"”’“‘»›«‹)\\]}」』）】"
_CLOSING_WIDE = "”’」』）】\"'"
_OPENING = "'\"“„‚‘«»‹›(\\[{¿¡「『（【"
_OPENING_WIDE = "「『“（"
_DASHES = "\\-–—•*"
_EMOJI = "\u2600-\u27bf\ufe0f\u200d\U0001f300-\U0001faff"
_LETTERS = "A-Za-zÀ-ɏͰ-ӿ"  # of scripts that have capitals
# What no sentence begins with, besides small letters.
_INSIDE = f",;:.!?…%&)\\]}}/=+>|”’、，；：）」』】。！？｡{_EMOJI}"

BREAK = re.compile(f"\r\n|[{_BREAKS}]")
# What every text of several sentences has.
CANDIDATE = re.compile(f"[{_FINAL}][{_CLOSING}{_EMOJI} \u00a0\u202f]*[{_BLANKS}]|[{_FINAL_ALONE}].|\n")

# Languages that are written without blanks between sentences.
_WITHOUT_BLANKS = ("ja", "zh")


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        before: the white space between it and the sentence before it; "" at the beginning of the text.
        text: the sentence, without white space around it.
    """

    before: str
    text: str


class Rule(NamedTuple):
    """Matches of `pattern` become `replacement`, in which \\1, \\2 and \\3 are groups of the pattern."""

    pattern: str
    replacement: str


def find_sentences(text: str, language: str) -> list[Sentence]:
    """The sentences of a text in a language; none of a blank text. A line feed ends one.

    Nothing of the text is lost but invisible characters (those of `repair.UNPRINTABLE`) and white space around it.

    Args:
        text: any text.
        language: the code of its language; without a table in `sentence_tables`, few abbreviations are known.
    """
    text = UNPRINTABLE.sub("", text).strip()
    if not CANDIDATE.search(text):
        return [Sentence("", text)] if text else []
    for pattern, replacement in _compiled(language):
        text = pattern.sub(replacement, text)
    sentences = ((piece, piece.lstrip()) for piece in text.split(BOUNDARY))
    return [Sentence(piece.removesuffix(sentence), sentence) for piece, sentence in sentences if sentence]


@functools.cache
def rules(language: str) -> tuple[Rule, ...]:
    """The rules of a language, to be applied in order; they put a `BOUNDARY` in front of the white space.

    None of them takes more than a time in proportion to the text: what is repeated in a pattern begins at few places.
    """
    table = TABLES.get(_primary(language), OTHER_LANGUAGES)
    blank, mark = WHITE_SPACE, BOUNDARY
    return (
        # Where sentences may end.
        Rule(
            f"([{_FINAL}][{_CLOSING}]*(?:[ \u00a0\u202f][»›][{_CLOSING}]*)?(?: ?[{_EMOJI}])*)({blank})",
            f"\\1{mark}\\2",
        ),
        # Chinese and Japanese: a full stop in quotes ends a sentence, other marks there only before another quote.
        Rule(f"([{_FINAL_ALONE}][{_FINAL_ALONE}{_FINAL}]*)", f"\\1{mark}"),
        Rule(f"([。｡]){mark}([{_CLOSING_WIDE}]+)", f"\\1\\2{mark}"),
        Rule(f"([！？]){mark}([{_CLOSING_WIDE}》〉]+)([{_OPENING_WIDE}])", f"\\1\\2{mark}\\3"),
        Rule(f"{mark}([{_CLOSING_WIDE}》〉、，；：…]|と|って)", "\\1"),
        # Where they do not: before a small letter, but for "eBay" and "a)", or other characters that begin none.
        Rule(f"{mark}({blank}+[{_OPENING}]*(?:[a-z][A-Z]|[a-z]\\)))", f"{_SETTLED}\\1"),
        Rule(f"{mark}({blank}+(?:[{_OPENING}{_DASHES}]+{blank}*)?[{_small_letters()}])", "\\1"),
        Rule(f"{mark}({blank}+(?:[{_INSIDE}]|[»›]$))", "\\1"),
        *_rules_of(table),
        # Behind the number of a list's item.
        Rule(f"((?:^|[{mark}{_SETTLED}]{blank}+)[0-9]{{1,3}}\\.){mark}", "\\1"),
        Rule(_SETTLED, mark),
        Rule(f"([^{_BLANKS}{mark}]){mark}?({blank}*\n{blank}*)", f"\\1{mark}\\2"),
    )


def blank_between(language: str) -> str:
    """Returns the separator of two sentences of a language that touch in the source."""
    return "" if _primary(language) in _WITHOUT_BLANKS else " "


def _primary(language: str) -> str:
    """The first part of a language code: that of "de-AT" is "de"."""
    return language.lower().replace("_", "-").partition("-")[0]


def _rules_of(table: Table) -> list[Rule]:
    """The rules of a language's abbreviations."""
    blank = WHITE_SPACE
    front = f"(?:^|[{_BLANKS}{_OPENING}{_DASHES}/{BOUNDARY}])"
    seldom = "|".join(filter(None, (_any_of(table.seldom_last), f"[{_LETTERS}]", table.numbers)))
    found = [Rule(f"({front}(?:{_any_of(table.never_last)})\\.){BOUNDARY}", "\\1")]
    if table.before_numbers:
        numbered = f"({front}(?:{_any_of(table.before_numbers)})\\.){BOUNDARY}({blank}+[0-9])"
        found.append(Rule(numbered, "\\1\\2"))
    if table.starters:
        start = f"{blank}+[{_OPENING}]*(?:{'|'.join(table.starters)})[{_BLANKS},'’]"
        found.append(Rule(f"({front}(?:{seldom})\\.[{_CLOSING}]*){BOUNDARY}({start})", f"\\1{_SETTLED}\\2"))
    found.append(Rule(f"({front}(?:{seldom})\\.){BOUNDARY}", "\\1"))
    return found


def _any_of(abbreviations: tuple[str, ...]) -> str:
    """A pattern of abbreviations, with a capital or without; a blank in one may be missing."""
    both = dict.fromkeys(form for each in abbreviations for form in (each, each[:1].upper() + each[1:]))
    return "|".join(each.replace(".", "\\.").replace(" ", f"{BOUNDARY}?[{_BLANKS}]?") for each in both)


@functools.cache
def _small_letters() -> str:
    """Letters that have a capital, as the inside of a character class."""
    letters = [chr(code) for code in range(0x3000) if chr(code).title() != chr(code)]
    ranges: list[list[str]] = []
    for letter in letters:
        if ranges and ord(letter) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = letter
        else:
            ranges.append([letter, letter])
    return "".join(first if first == last else f"{first}-{last}" for first, last in ranges)


@functools.cache
def _compiled(language: str) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), replacement) for pattern, replacement in rules(language)]
