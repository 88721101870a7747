"""Prints, as JSON, the kind of each flag of each program, and the errors of numeric flags for some values.

Two programs may define the same flag, so the flags of a program are deleted before the next program is imported.
"""

import importlib
import json
import pathlib
import sys
from typing import Annotated, Any, get_args, get_origin

from absl import flags

from tests.launch.cluster.parse_commands import unload_programs

VALUES = ("nan", "inf", "-inf", "1e999", "many", "", "-1", "0")


def kind_of(flag: flags.Flag) -> str:
    """The kind of a flag, with the role of a path and the bounds of a number."""
    kind = flag.flag_type()
    if "path" in kind:
        return f"{kind} {flag.parser.kind.name}"
    return f"number{_bounds(flag.parser.annotation)}" if hasattr(flag.parser, "annotation") else kind


def _bounds(annotation: Any) -> str:
    if get_origin(annotation) is tuple:
        return f"s,{_bounds(get_args(annotation)[0])}"
    if get_origin(annotation) is not Annotated:
        return f" {annotation.__name__}"
    kind, bounds = get_args(annotation)
    return f" {kind.__name__}, {bounds.valid}"


def error_of(flag: flags.Flag, value: str) -> str | None:
    try:
        flag.parse(value)
    except flags.Error as error:
        return str(error)
    return None


def main() -> None:
    kinds, errors = {}, {}
    for path in sorted(pathlib.Path("launch").glob("*.py")):
        if "run = program.command(main" not in path.read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(f"launch.{path.stem}")
        for flag in flags.FLAGS.get_key_flags_for_module(module):
            name = f"{path.stem} {flag.name}"
            kinds[name] = kind_of(flag)
            if "number" in kinds[name]:
                errors[name] = {value: error_of(flag, value) for value in VALUES}
        unload_programs()
    print(json.dumps({"kinds": kinds, "errors": errors, "tensorflow": "tensorflow" in sys.modules}))


if __name__ == "__main__":
    main()
