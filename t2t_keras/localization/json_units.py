"""JSON and Flutter's .arb: the strings that are values."""

import json
import re

from t2t_keras.errors import InputError
from t2t_keras.localization.units import Options, Unit, replacement, text_part
from t2t_keras.text.repair import surrogates_joined

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def json_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a JSON file, without the values of keys that begin with "@".

    In .arb and similar files, such keys hold notes.

    Raises:
        InputError: the file is not valid JSON; names the line.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(f"line {line}: not valid JSON: {getattr(error, 'msg', error)}") from None
    is_ascii = text.isascii() and "\\u" in text
    units = []
    # For each open object or list, whether it belongs to a note; an object also has its latest key.
    skipped, keys = [False], [""]
    tokens = list(_TOKEN.finditer(text))
    for number, token in enumerate(tokens):
        kind = token[0][0]
        is_note = skipped[-1] or keys[-1].startswith("@")
        if kind in "{[":
            skipped.append(is_note)
            keys.append("")
        elif kind in "}]":
            skipped.pop()
            keys.pop()
        elif kind == '"':
            if number + 1 < len(tokens) and tokens[number + 1][0] == ":":
                keys[-1] = json.loads(token[0])
            elif not is_note:
                start, end = token.start() + 1, token.end() - 1
                units.append(
                    Unit(
                        text_part(surrogates_joined(json.loads(token[0]))),
                        start,
                        replacement(start, end),
                        replaces=True,
                        note=keys[-1],
                        escape=lambda part: json.dumps(part, ensure_ascii=is_ascii)[1:-1],
                    )
                )
    return units
