"""Parses command lines with the flags of the programs of launch/ themselves, without running these.

Flags of two programs cannot live in one process, so a program's are taken away before the next is imported.

Usage: parse_commands.py, with a JSON list of [program, [argument, ...]] on standard input; prints a JSON list of the
complaints, each null where there is none.
"""

import importlib
import json
import sys
import types

from absl import flags

from t2t_keras import config
from t2t_keras.errors import InputError
from t2t_keras.models import presets

# absl remembers some modules by their address, which must not become another's.
forgotten: list[types.ModuleType] = []


def complaint(arguments: list[str]) -> str | None:
    """What the program that was imported last would say against its arguments."""
    values = flags.FLAGS
    try:
        rest = values(["program", *arguments])[1:]
        if rest:
            return f"unexpected argument {rest[0]!r}"
        start = config.Config()
        is_extended = "extension" in values and values["extension"].value  # by presets that only its file knows
        if "preset" in values and values["preset"].value and not is_extended:
            start = presets.preset(values["preset"].value)
        if "set" in values:
            config.override(start, values["set"].value)
    except (flags.Error, InputError) as error:
        # A document may leave out what every run needs.
        return None if "must have a value other than None" in str(error) else str(error)
    return None


def forget_programs() -> None:
    """Takes whatever was imported of launch/ and its flags away again."""
    for module in [name for name in sys.modules if name == "launch" or name.startswith("launch.")]:
        for flag in flags.FLAGS.get_flags_for_module(sys.modules[module]):
            delattr(flags.FLAGS, flag.name)
        forgotten.append(sys.modules.pop(module))


def main() -> None:
    commands = json.load(sys.stdin)
    found: dict[int, str | None] = {}
    for program in sorted({program for program, _ in commands}):
        importlib.import_module(f"launch.{program}")
        for number, (name, arguments) in enumerate(commands):
            if name == program:
                for flag in flags.FLAGS:
                    flags.FLAGS[flag].unparse()
                found[number] = complaint(arguments)
        forget_programs()
    print(json.dumps([found[number] for number in range(len(commands))]))


if __name__ == "__main__":
    main()
