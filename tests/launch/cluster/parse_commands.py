"""Parses command lines with the flags of the programs in launch/, without running the programs.

Two programs may define the same flag, so the flags of a program are deleted before the next program is imported.

Usage: parse_commands.py, with a JSON list of [program, [argument, ...]] on standard input. It prints a JSON list with
the error of each command, or null for a valid command.
"""

import importlib
import json
import sys
import types

from absl import flags

from t2t_keras import config
from t2t_keras.errors import InputError
from t2t_keras.models import presets

# absl identifies modules by their id, so the modules must stay alive.
imported: list[types.ModuleType] = []


def find_error(arguments: list[str]) -> str | None:
    """Returns the error of the program that was imported last for these arguments."""
    values = flags.FLAGS
    try:
        rest = values(["program", *arguments])[1:]
        if rest:
            return f"unexpected argument {rest[0]!r}"
        start = config.Config()
        is_extended = "extension" in values and values["extension"].value  # presets from a file that is not loaded
        if "preset" in values and values["preset"].value and not is_extended:
            start = presets.preset(values["preset"].value)
        if "set" in values:
            config.override(start, values["set"].value)
    except (flags.Error, InputError) as error:
        # Documents may omit required flags.
        return None if "must have a value other than None" in str(error) else str(error)
    return None


def unload_programs() -> None:
    """Deletes the modules of launch/ and their flags."""
    for module in [name for name in sys.modules if name == "launch" or name.startswith("launch.")]:
        for flag in flags.FLAGS.get_flags_for_module(sys.modules[module]):
            delattr(flags.FLAGS, flag.name)
        imported.append(sys.modules.pop(module))


def main() -> None:
    commands = json.load(sys.stdin)
    errors: dict[int, str | None] = {}
    for program in sorted({program for program, _ in commands}):
        importlib.import_module(f"launch.{program}")
        for number, (name, arguments) in enumerate(commands):
            if name == program:
                for flag in flags.FLAGS:
                    flags.FLAGS[flag].unparse()
                errors[number] = find_error(arguments)
        unload_programs()
    print(json.dumps([errors[number] for number in range(len(commands))]))


if __name__ == "__main__":
    main()
