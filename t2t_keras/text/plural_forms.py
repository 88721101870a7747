"""Reads the rules of gettext catalogues that select the plural form for a number."""

import gettext
import re
from collections.abc import Callable
from typing import NamedTuple

_HEADER = re.compile(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;\n]+)")
_MAX_FORMS = 20  # Arabic has six
NUMBERS = range(200)  # rules are periodic in 100


class PluralRule(NamedTuple):
    """The plural forms of a language.

    Attributes:
        num_forms: number of forms.
        form: returns the index of the form for a number.
    """

    num_forms: int
    form: Callable[[int], int]


def plural_rule(header: str) -> PluralRule | None:
    """Returns the rule in a header, such as "nplurals=2; plural=(n != 1);"; None if it has no valid rule."""
    match = _HEADER.search(header)
    if not match or int(match[1]) > _MAX_FORMS:
        return None
    try:
        rule = PluralRule(int(match[1]), gettext.c2py(match[2].strip()))
        return rule if all(0 <= rule.form(number) < rule.num_forms for number in NUMBERS) else None
    except (ValueError, ZeroDivisionError):
        return None
