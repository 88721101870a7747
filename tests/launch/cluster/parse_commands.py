"""Parses command lines with the flags of the programs of launch/ themselves, without running these.

Flags of two programs cannot live in one process, so a program's are taken away before the next is imported.

Usage: parse_commands.py, with a JSON list of [program, [argument, ...]] on standard input; prints a JSON list of the
complaints, each null where there is none.
"""

import importlib
import json
import sys

from absl import flags

from t2t_keras import config, presets
from t2t_keras.errors import InputError


def complaint(arguments: list[str]) -> str | None:
    """What the program that was imported last would say against its arguments."""
    values = flags.FLAGS
    try:
        rest = values(["program", *arguments])[1:]
        if rest:
            return f"unexpected argument {rest[0]!r}"
        start = config.Config()
        if "preset" in values and values["preset"].value:
            start = presets.preset(values["preset"].value)
        if "set" in values:
            config.override(start, values["set"].value)
    except (flags.Error, InputError) as error:
        return str(error)
    return None


def forget(modules: set[str], names: set[str]) -> None:
    """Takes a program and its flags away again."""
    for module in set(sys.modules) - modules:
        if module == "launch" or module.startswith("launch."):
            del sys.modules[module]
    for name in set(flags.FLAGS) - names:
        delattr(flags.FLAGS, name)


def main() -> None:
    commands = json.load(sys.stdin)
    found: dict[int, str | None] = {}
    for program in sorted({program for program, _ in commands}):
        modules, names = set(sys.modules), set(flags.FLAGS)
        importlib.import_module(f"launch.{program}")
        for number, (name, arguments) in enumerate(commands):
            if name == program:
                for flag in flags.FLAGS:
                    flags.FLAGS[flag].unparse()
                found[number] = complaint(arguments)
        forget(modules, names)
    print(json.dumps([found[number] for number in range(len(commands))]))


if __name__ == "__main__":
    main()
