"""Finds spans that a translation must repeat unchanged: URLs, file names, user patterns, and unknown characters.

The patterns of the kinds take linear time on ordinary text: their repetitions are bounded, or each repeated part begins
with a character that the part before it cannot contain. The patterns of a user run in the same engine, Python's `re`.
Nested repetitions such as `(a+)+` take exponential time there, and nothing stops them, so a server must take patterns
only from its operator.
"""

import collections
import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.text.characters import character_class
from t2t_keras.text.languages import CHARACTER, combining_marks
from t2t_keras.text.repair import REPAIRABLE
from t2t_keras.text.words import disjoint

# Protects nothing, not even unknown characters.
NOTHING = "nothing"


def _not_after(characters: str = "") -> str:
    """Returns a pattern for a place that follows neither a word nor any of these characters."""
    return f"(?<!{_of_word(characters)})"


def _not_before(characters: str = "") -> str:
    """Returns a pattern for a place that precedes neither a word nor any of these characters."""
    return f"(?!{_of_word(characters)})"


def _of_word(characters: str = "") -> str:
    r"""Returns a pattern for a character of a word, or one of these characters.

    Unlike `\w`, it matches no Chinese or Japanese characters, because these languages do not separate words.
    """
    return rf"(?!{CHARACTER.pattern})[\w{characters}]"


_URL_END = r"\s<>\"“”„«»。，、；：！？「」『』（）【】《》"
_DOMAIN = f"(?:(?:{_of_word('-')}){{1,63}}" + r"\.){1,8}(?:com|org|net|edu|gov|info|io|eu|de|fr|uk)" + _not_before("-")
_URL = (
    rf"{_not_after()}(?:[A-Za-z][A-Za-z0-9+.-]{{1,15}}://|www\.)(?:(?!https?://)[^{_URL_END}])+"
    rf"|{_not_after('@.-')}{_DOMAIN}(?:[/?#][^{_URL_END}]*)?"
)
_MAILBOX = "(?:" + _of_word(".+%'-") + "){1,64}"
_EMAIL = rf"{_not_after('.+-')}(?:mailto:)?{_MAILBOX}@(?:[\w-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}{_not_before('-')}"

# Atomic, so that no part of a number is protected, and bounded, so that a long row of numbers takes linear time.
_DIGITS = r"(?>\d+(?:[.,'’\u00a0\u202f]\d+){0,20})"
_SIZES = "[kKMGTPE]i?[bB]|[kKMGT]?bit|[kMGT]bps|bps|B"
_MEASURES = (
    *("km", "hm", "dm", "cm", "mm", "µm", "μm", "nm", "m", "mi", "ft", "yd", "ha", "kg", "mg", "µg", "μg", "g", "lbs?"),
    *("oz", "hl", "cl", "dl", "ml", "mL", "l", "L", "ms", "µs", "μs", "ns", "min", "h", "s", "mph", "kn", "rpm"),
    *("[kMG]?Hz", "[kMGT]?Wh?", "[mk]?V", "mAh?", "Ah", "[kM]?J", "k?cal", "[hkM]?Pa", "m?bar", "psi", "dBA?", "lm"),
    *("lx", "mol", "[kM]?Ω", "px", "pt", "dpi", "fps", "rem", "em", "K", "N", "°[CF]?", "[%‰]", _SIZES),
)
_UNIT = f"(?:{'|'.join(_MEASURES)})[²³]?"
_CURRENCY = "[$€£¥]|EUR|USD|GBP|CHF|JPY"
_BLANK = "[ \u00a0\u202f]"
_NUMBER = (
    rf"{_not_after('.,$€£¥')}[-−+±]?{_DIGITS}(?:{_BLANK}?[-–×x]{_BLANK}?{_DIGITS})?{_BLANK}?"
    rf"(?:{_UNIT}(?:[/·]{_UNIT})*|{_CURRENCY}){_not_before()}"
    rf"|{_not_after()}(?:[$€£¥]|(?:EUR|USD|GBP|CHF|JPY){_BLANK}){_BLANK}?{_DIGITS}{_not_before()}"
    rf"|{_not_after('.')}v?\d+(?:\.\d+){{2,}}(?:-?(?:alpha|beta|rc|dev|post)\.?\d*)?{_not_before()}"
    rf"|{_not_after('.')}v\d+(?:\.\d+)*{_not_before()}"
)

_EXTENSION = (
    "txt|md|rst|pdf|docx?|odt|rtf|xlsx?|ods|csv|tsv|pptx?|odp|html?|xml|xliff?|json|jsonl|ya?ml|toml|ini|cfg|conf|log|"
    "py|ipynb|js|ts|css|java|jar|c|h|cpp|hpp|cc|cs|go|rs|rb|php|sh|bat|ps1|sql|tex|po|pot|mo|png|jpe?g|gif|svg|webp|"
    "bmp|tiff?|ico|mp[34]|wav|flac|ogg|avi|mov|mkv|webm|zip|tar|gz|bz2|xz|zst|7z|rar|iso|exe|dll|so|deb|rpm|dmg|apk|"
    "db|sqlite|bak|tmp|lock|key|pem|crt|whl|npz|npy|parquet|srt|vtt"
)
_NAME = r"[\w.@+~-]{1,255}"
_FILE = (
    r"(?<![\w\\])(?:[A-Za-z]:\\|\\\\(?=\w))(?:[^\\/:*?\"<>|,;\r\n]{1,255}\\(?!\\))*[^\\/:*?\"<>|\s]{0,255}"
    rf"|(?<![\w/.~])(?:~|\.{{1,2}})?/{_NAME}(?:/{_NAME})*/?"
    rf"|(?<![\w/.@+~-])(?:{_NAME}/)*[\w@+~-][\w.@+~-]{{0,255}}(?<=\.)(?:{_EXTENSION})(?![\w/-])"
)

# The pattern of each kind. Trailing punctuation is not part of a span.
KINDS = {"urls": _URL, "emails": _EMAIL, "numbers": _NUMBER, "files": _FILE}

_CLOSING = {")": "(", "]": "[", "}": "{"}
_TRAILING = ".,;:!?'’…"

# Marks that modify the character before them: variation selectors, skin tones, tags of flags, and the keycap.
_MODIFIERS = "\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u20e3"
_JOINER = "\u200d"
_REGIONAL = "[\U0001f1e6-\U0001f1ff]"
# A run of the same mark, or of question and exclamation marks, which a model that never read one translates wrongly.
_RUN = r"[?!]{3,}|([^\w\s]|_)\1{3,}"
# Words and the marks that join them, with at least one word.
_JOINED = re.compile(r"[.:@/#&+~%=?-]*\w[\w.:@/#&+~%=?-]*")
_MAX_JOINED = 1000
_SENTENCE_MARKS = ".!?。！？…"

# The marks that a model reads in place of unknown ones, if it knows them.
_EQUIVALENTS = {
    **dict.fromkeys("’‘‛′", "'"),
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("–—―‐‑−", "-"),
    **{"…": "...", "。": ".", "！": "!", "？": "?", "，": ",", "；": ";", "：": ":", "（": "(", "）": ")"},
}


class Span(NamedTuple):
    """A span of a text.

    Attributes:
        start: position of its first character.
        end: position after its last character.
        is_removed: whether the model must not read the span; if false, the span may stay if the model repeats it.
        is_unknown: whether the span has characters that the model does not know.
    """

    start: int
    end: int
    is_removed: bool
    is_unknown: bool = False


class SpanFinder:
    """Finds the protected spans of texts.

    Args:
        protect: kinds of spans from `KINDS`, several of them separated by commas, or regular expressions; `NOTHING`
            turns off the protection of unknown characters.
        characters: the characters that the model knows; None if they are not recorded, so that all count as known.
        lowercases: whether the model reads lowercased text.

    Raises:
        InputError: a kind is unknown, or an expression is not valid; the message names the flag and its value.
    """

    def __init__(
        self, protect: Sequence[str] = (), characters: frozenset[str] | None = None, lowercases: bool = False
    ) -> None:
        self._patterns = patterns(protect)
        known = None if NOTHING in protect else characters
        self._unknown: re.Pattern[str] | None = None
        self._equivalents: dict[int, str] = {}
        tests = [pattern.pattern for pattern, is_kind in self._patterns if is_kind]
        if known is not None:
            self._unknown = re.compile(f"[^{_known_class(known, lowercases)}]")
            equivalents = {
                mark: text for mark, text in _EQUIVALENTS.items() if mark not in known and known >= set(text)
            }
            self._equivalents = str.maketrans(equivalents)
            tests += [self._unknown.pattern, r"[?!]{3}|([^\w\s]|_)\1{3}" if not tests else r"[?!]{3}|[^\w\s]{4}|_{4}"]
        self._tests = [re.compile("|".join(tests))] if tests else []
        # Patterns of a user may have groups and flags, so they are tested separately.
        self._tests += [pattern for pattern, is_kind in self._patterns if not is_kind]

    def has_spans(self, text: str) -> bool:
        """Returns whether a text may have protected spans or unknown marks; false for nearly all plain text."""
        return any(test.search(text) for test in self._tests)

    def readable(self, text: str) -> str:
        """Returns a text with known equivalents in place of unknown punctuation marks, such as "'" for "’"."""
        return text.translate(self._equivalents)

    def spans(self, text: str) -> list[Span]:
        """Returns the protected spans of a text in order; they do not overlap."""
        result: list[Span] = []
        for pattern, is_kind in self._patterns:
            for match in pattern.finditer(text):
                start, end = match.span()
                end = _without_trailing(text, start, end) if is_kind else end
                if start < end:
                    unknown = bool(self._unknown and self._unknown.search(text, start, end))
                    result.append(Span(start, end, unknown, unknown))
        result = _disjoint(result)
        if self._unknown:
            result = _disjoint([*result, *self._unknown_spans(text), *_runs(text)], len(result))
        return result

    def _unknown_spans(self, text: str) -> Iterator[Span]:
        """Yields the tokens with unknown characters; adjacent tokens are one span."""
        assert self._unknown
        last = Span(-1, -1, True, True)
        for match in _token().finditer(text):
            start, end = match.span()
            is_known = not self._unknown.search(text, start, end)
            if end <= last.end or is_known or all(ord(each) in self._equivalents for each in match[0]):
                continue
            start, end = _with_words(text, start, end)
            if last.end >= start:
                last = last._replace(end=end)
                continue
            if last.end > 0:
                yield last
            last = last._replace(start=start, end=end)
        if last.end > 0:
            yield last


def _with_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the place of a mark with the words that it joins, such as those of "and/or" or of an address."""
    if unicodedata.category(text[start])[0] not in "PS" or unicodedata.category(text[start]) == "So":
        return start, end
    front = _JOINED.match(text[max(start - _MAX_JOINED, 0) : start][::-1])
    rest = _JOINED.match(text, end, end + _MAX_JOINED)
    if not front or not rest:
        return start, end
    return start - front.end(), _without_trailing(text, start, rest.end())


@functools.cache
def _token() -> re.Pattern[str]:
    """Returns a pattern for a word, a Chinese or Japanese character, or another character with its modifiers."""
    extension = f"[{re.escape(combining_marks())}{_MODIFIERS}]*"
    word = rf"(?:(?!{CHARACTER.pattern})\w{extension})+"
    return re.compile(f"{word}|{_REGIONAL}{_REGIONAL}|.{extension}(?:{_JOINER}.{extension})*{_JOINER}?", re.DOTALL)


def patterns(protect: Sequence[str]) -> list[tuple[re.Pattern[str], bool]]:
    """Returns the compiled patterns, and whether each belongs to a kind; see `SpanFinder` for arguments and errors."""
    result: list[tuple[re.Pattern[str], bool]] = []
    for value in protect:
        names = [name.strip() for name in value.split(",")]
        if value == NOTHING:
            continue
        if any(name in KINDS for name in names):
            if unknown := [name for name in names if name not in KINDS]:
                raise InputError(f"--protect={value}: unknown kind {unknown[0]!r}; valid: {', '.join(KINDS)}")
            result += [(re.compile(KINDS[name]), True) for name in names]
            continue
        try:
            pattern = re.compile(value)
        except (re.error, RecursionError, OverflowError) as error:
            raise InputError(f"--protect={value}: not a valid regular expression: {error}") from None
        if pattern.fullmatch(""):
            raise InputError(f"--protect={value}: the regular expression matches an empty text")
        result.append((pattern, False))
    return result


def _known_class(characters: frozenset[str], lowercases: bool) -> str:
    """Returns the contents of a character class of known characters, white space and those that `repair` removes."""
    known = set(characters)
    if lowercases:
        known |= {other for each in characters for other in (each.lower(), each.upper()) if len(other) == 1}
    repairable = REPAIRABLE.pattern[1 : REPAIRABLE.pattern.index("]")]
    return rf"{character_class(known)}\s{repairable}"


def _without_trailing(text: str, start: int, end: int) -> int:
    """Returns the end of a match without trailing punctuation and closing brackets that it does not open."""
    counts = collections.Counter(text[start:end])
    while end > start:
        last = text[end - 1]
        is_unopened = last in _CLOSING and counts[_CLOSING[last]] < counts[last]
        if last not in _TRAILING and not is_unopened:
            break
        counts[last] -= 1
        end -= 1
    return end


def _runs(text: str) -> Iterator[Span]:
    """Yields runs of marks; of a run of sentence marks, the first one is left, because it ends the sentence."""
    for match in re.finditer(_RUN, text):
        start = match.start() + (match[0][0] in _SENTENCE_MARKS)
        yield Span(start, match.end(), True)


def _disjoint(spans: Sequence[Span], num_fixed: int = 0) -> list[Span]:
    """Returns spans that do not overlap, in order: the first `num_fixed` ones, and of the others, the longest."""
    order = sorted(range(len(spans)), key=lambda n: (n >= num_fixed, spans[n].start - spans[n].end, spans[n].start))
    return disjoint(spans[number] for number in order)
