"""Keeps the meaning of arguments without a number, such as `%s` and `{}`, when a translation changes their order."""

import re
from collections.abc import Sequence

from t2t_keras.text.markup.placeholders import AFTER_PERCENT

# An argument without a number: %s, %5.2f, {}, {:>8}. After a digit, "%" is a percent sign.
ARGUMENT = re.compile(rf"(?<![%\d])%{AFTER_PERCENT}|(?<![{{$#%])\{{(?:![rsa])?(?::[^{{}}]*)?\}}")
_PRINTF = re.compile(r"(?<![%\d])%(?=[-+#0\d.*hlLqjzt]*[diouxXeEfFgGcrsaAp@])")
_BRACES = re.compile(r"(?<![{$#%])\{(?=[:!}])")


def ordered(raws: Sequence[str], order: Sequence[int], numbers_arguments: bool) -> list[str]:
    """Returns the spellings of the placeholders of a translation.

    Arguments in a new order are numbered: `%s %d` becomes `%2$d %1$s`, and `{} {}` becomes `{1} {0}`. If programs do
    not understand `%2$d`, the arguments stay in the order of the source instead.

    Args:
        raws: the placeholders and tags in the order of the source.
        order: their indices in the order of the translation.
        numbers_arguments: whether programs understand `%2$d`.
    """
    result = list(raws)
    for pattern, first, spelling in ((_PRINTF, 1, "%{}$"), (_BRACES, 0, "{{{}")):
        sources = [number for number, raw in enumerate(raws) if pattern.search(raw)]
        targets = [number for number in order if number in set(sources)]
        if targets == sources:
            continue
        if pattern is _PRINTF and (not numbers_arguments or any("*" in raws[number] for number in sources)):
            for source, target in zip(sources, targets, strict=False):
                result[target] = raws[source]
            continue
        count = first - 1

        def numbered(_: re.Match[str], spelling: str = spelling) -> str:
            nonlocal count
            count += 1
            return spelling.format(count)

        for number in sources:
            result[number] = pattern.sub(numbered, raws[number])
    return result
