"""Makes the final mark of a target agree with that of its source."""

import re
import unicodedata

from t2t_keras.text.languages import CHARACTER, east_asian
from t2t_keras.text.sentences import CLOSING, FINAL, FINAL_WIDE

_CLOSERS = CLOSING.replace("\\", "") + " \u00a0\u202f"
_END = f"[{CLOSING} \u00a0\u202f]*$"
_FINAL_MARK = re.compile(f"[{FINAL}{FINAL_WIDE}]{_END}")
# A single mark that does not end an ellipsis or an abbreviation such as "U.S.".
_FULL_STOP = re.compile(rf"(?<![{FINAL}{FINAL_WIDE}])(?<!\.[^\W\d_])[.。｡।։።။۔](?={_END})")

# The full stops of scripts, by their letters; Thai and Lao have none.
_SCRIPT_STOPS = (
    (CHARACTER, "。"),
    (re.compile("[\u0900-\u0a7f\u0b00-\u0b7f]"), "।"),  # Devanagari, Bengali, Gurmukhi, Oriya
    (re.compile("[\u0531-\u0588]"), "։"),  # Armenian
    (re.compile("[\u1200-\u139f]"), "።"),  # Ethiopic
    (re.compile("[\u1000-\u109f]"), "။"),  # Burmese
    (re.compile("[\u0e00-\u0eff]"), ""),
)


def with_final_mark_of(source: str, target: str, language: str) -> str:
    """Returns a target whose final full stop is removed or added so that it agrees with its source.

    - If the source has no final mark, a full stop at the end of the target is removed.
    - If the source ends with a full stop and the target ends with a letter, a digit or a symbol, the full stop of its
      script is added.

    Closing quotes and brackets may follow a final mark. If they end both the source and the target, a full stop is
    added inside them if the source has its full stop inside. The points of "..." and "U.S." are not full stops.

    Args:
        source: a repaired source.
        target: its repaired target.
        language: language code of the target.
    """
    if not _FINAL_MARK.search(source):
        return _FULL_STOP.sub("", target)
    stop = _FULL_STOP.search(source)
    text = target.rstrip(_CLOSERS)
    if not stop or not text or (unicodedata.category(text[-1])[0] == "P" and text[-1] != "%"):
        return target
    end = len(text) if stop.end() < len(source) else len(target)
    return f"{target[:end]}{_full_stop(text[-1], language)}{target[end:]}"


def _full_stop(last: str, language: str) -> str:
    """Returns the full stop that follows a character in a language."""
    if east_asian(language) in ("zh", "ja"):
        return "。"
    return next((mark for letters, mark in _SCRIPT_STOPS if letters.match(last)), ".")
