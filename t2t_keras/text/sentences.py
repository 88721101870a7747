"""Splits text into sentences.

The rules are regular expressions that mean the same in Python and in RE2, which exported graphs use.
"""

import functools
import re
from typing import NamedTuple

from t2t_keras.text.characters import character_class
from t2t_keras.text.language_codes import base_language
from t2t_keras.text.languages import east_asian
from t2t_keras.text.repair import UNPRINTABLE
from t2t_keras.text.sentence_tables import OTHER_LANGUAGES, TABLES, Table

# Both characters mark the end of a sentence. Later rules may remove a `BOUNDARY`, but not a `_FIXED_BOUNDARY`. The text
# itself contains neither, because invisible characters are removed first.
BOUNDARY, _FIXED_BOUNDARY = "\x01", "\x02"

_BREAKS = "\n\v\f\r\x1c-\x1e\x85\u2028\u2029"  # characters that some tools treat as line breaks
_SPACES = f" \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000{_BREAKS}"

WHITE_SPACE = f"[{_SPACES}]"

# The following strings are used within the brackets of character classes.
FINAL = ".!?…‽؟۔।॥։።။\u037e"  # ends a sentence if white space follows
FINAL_WIDE = "。！？｡"  # ends a sentence without white space after it
CLOSING = "'\"”’“‘»›«‹)\\]}」』）】"
_CLOSING_WIDE = "”’」』）】\"'"
_OPENING = "'\"“„‚‘«»‹›(\\[{¿¡「『（【"
_OPENING_WIDE = "「『“（"
_DASHES = "\\-–—•*"
_EMOJI = "\u2600-\u27bf\ufe0f\u200d\U0001f300-\U0001faff"
_LETTERS = "A-Za-zÀ-ɏͰ-ӿ"  # of scripts that have capitals
# Characters, besides lowercase letters, that cannot begin a sentence.
_NEVER_FIRST = f",;:.!?…%&)\\]}}/=+>|”’、，；：）」』】。！？｡{_EMOJI}"

BREAK = re.compile(f"\r\n|[{_BREAKS}]")
# Matches in every text that has several sentences.
CANDIDATE = re.compile(f"[{FINAL}][{CLOSING}{_EMOJI} \u00a0\u202f]*[{_SPACES}]|[{FINAL_WIDE}].|\n")

# Languages without spaces between sentences.
_WITHOUT_SPACES = ("ja", "zh")


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        before: the white space between the previous sentence and this one; "" for the first sentence.
        text: the sentence, without surrounding white space.
    """

    before: str
    text: str


class Rule(NamedTuple):
    """Replaces the matches of `pattern` with `replacement`, in which \\1, \\2 and \\3 are groups of the pattern."""

    pattern: str
    replacement: str


def find_sentences(text: str, language: str) -> list[Sentence]:
    """Splits a text into sentences.

    A line feed always ends a sentence. Joining the sentences, each after its preceding white space, restores the text
    without invisible characters (`repair.UNPRINTABLE`) and surrounding white space.

    Args:
        text: the text.
        language: language code of the text. Few abbreviations are known for languages without a table in
            `sentence_tables`.

    Returns:
        The sentences; an empty list for a blank text.
    """
    text = UNPRINTABLE.sub("", text).strip()
    if not CANDIDATE.search(text):
        return [Sentence("", text)] if text else []
    for pattern, replacement in _compile(language):
        text = pattern.sub(replacement, text)
    sentences = ((piece, piece.lstrip()) for piece in text.split(BOUNDARY))
    return [Sentence(piece.removesuffix(sentence), sentence) for piece, sentence in sentences if sentence]


@functools.cache
def rules(language: str) -> tuple[Rule, ...]:
    """Returns the rules of a language, in the order in which to apply them.

    The rules insert a `BOUNDARY` after each sentence, before the white space. The time of each rule is linear in the
    length of the text.
    """
    table = TABLES.get(base_language(language), OTHER_LANGUAGES)
    space, mark = WHITE_SPACE, BOUNDARY
    return (
        # Insert boundaries wherever a sentence may end.
        Rule(
            f"([{FINAL}][{CLOSING}]*(?:[ \u00a0\u202f][»›][{CLOSING}]*)?(?: ?[{_EMOJI}])*)({space})",
            f"\\1{mark}\\2",
        ),
        *_rules_without_marks(table),
        # In Chinese and Japanese, a full stop within quotes ends a sentence. Other final marks within quotes do so only
        # before an opening quote.
        Rule(f"([{FINAL_WIDE}][{FINAL_WIDE}{FINAL}]*)", f"\\1{mark}"),
        Rule(f"([。｡]){mark}([{_CLOSING_WIDE}]+)", f"\\1\\2{mark}"),
        Rule(f"([！？]){mark}([{_CLOSING_WIDE}》〉]+)([{_OPENING_WIDE}])", f"\\1\\2{mark}\\3"),
        Rule(f"{mark}([{_CLOSING_WIDE}》〉、，；：…]|と|って)", "\\1"),
        # Remove boundaries before lowercase letters, except for words like "eBay" and list items like "a)".
        Rule(f"{mark}({space}+[{_OPENING}]*(?:[a-z][A-Z]|[a-z]\\)))", f"{_FIXED_BOUNDARY}\\1"),
        Rule(f"{mark}({space}+(?:[{_OPENING}{_DASHES}]+{space}*)?[{_small_letters()}])", "\\1"),
        Rule(f"{mark}({space}+(?:[{_NEVER_FIRST}]|[»›]$))", "\\1"),
        *_rules_of(table),
        # Remove boundaries after the number of a list item.
        Rule(f"((?:^|[{mark}{_FIXED_BOUNDARY}]{space}+)[0-9]{{1,3}}\\.){mark}", "\\1"),
        Rule(_FIXED_BOUNDARY, mark),
        Rule(f"([^{_SPACES}{mark}]){mark}?({space}*\n{space}*)", f"\\1{mark}\\2"),
    )


def blank_between(language: str) -> str:
    """Returns the separator of two translated sentences whose sources have no white space in between.

    Args:
        language: language code of the translations.
    """
    return "" if east_asian(language) in _WITHOUT_SPACES else " "


def _rules_of(table: Table) -> list[Rule]:
    """Returns the rules that remove the boundaries after a language's abbreviations."""
    space = WHITE_SPACE
    front = f"(?:^|[{_SPACES}{_OPENING}{_DASHES}/{BOUNDARY}])"
    rare_ends = "|".join(filter(None, (_any_of(table.rarely_last), f"[{_LETTERS}]", table.numbers)))
    result = [Rule(f"({front}(?:{_any_of(table.never_last)})\\.){BOUNDARY}", "\\1")]
    if table.before_numbers:
        numbered = f"({front}(?:{_any_of(table.before_numbers)})\\.){BOUNDARY}({space}+[0-9])"
        result.append(Rule(numbered, "\\1\\2"))
    if table.starters:
        start = f"{space}+[{_OPENING}]*(?:{'|'.join(table.starters)})[{_SPACES},'’]"
        result.append(Rule(f"({front}(?:{rare_ends})\\.[{CLOSING}]*){BOUNDARY}({start})", f"\\1{_FIXED_BOUNDARY}\\2"))
    result.append(Rule(f"({front}(?:{rare_ends})\\.){BOUNDARY}", "\\1"))
    return result


def _rules_without_marks(table: Table) -> list[Rule]:
    """Returns the rules that insert the boundaries between sentences without a final mark between them."""
    if not table.openers:
        return []
    space, opener = f"{WHITE_SPACE}+", "|".join(table.openers)
    return [
        Rule(f"([{_SPACES}][a-z]+)({space}(?:{opener}){space}[a-z])", f"\\1{BOUNDARY}\\2"),
        Rule(f"([{_SPACES}](?:{'|'.join(table.labelled)})){BOUNDARY}({space}[A-Z])", "\\1\\2"),
        Rule(f"([a-z]){BOUNDARY}({space}A{space}(?:{'|'.join(table.predicates)}){space})", "\\1\\2"),
    ]


def _any_of(abbreviations: tuple[str, ...]) -> str:
    """Returns a pattern that matches any of the abbreviations.

    The first letter may be a capital, and a space within an abbreviation may be missing.
    """
    forms = dict.fromkeys(form for each in abbreviations for form in (each, each[:1].upper() + each[1:]))
    return "|".join(each.replace(".", "\\.").replace(" ", f"{BOUNDARY}?[{_SPACES}]?") for each in forms)


@functools.cache
def _small_letters() -> str:
    """Returns the lowercase letters, for use within the brackets of a character class."""
    return character_class(letter for letter in map(chr, range(0x3000)) if letter.title() != letter)


@functools.cache
def _compile(language: str) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), replacement) for pattern, replacement in rules(language)]
