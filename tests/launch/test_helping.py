"""The output of --help."""

import re
import types

import pytest
from absl import flags

from launch import helping
from launch.flag_types import ANY, FOLDER, DEFINE_multi_path, DEFINE_number, DEFINE_path
from t2t_keras.values import PositiveInt, Rate
from tests import programs

NAME = "tests.a_program"
DOC = """Does something.

Examples:
    python -m launch.translate --model_dir=runs/mine
    python -m launch.train --model_dir=runs/mine
"""


@pytest.fixture(scope="module")
def module():
    """A module with a flag of each kind, in a separate registry."""
    values = flags.FlagValues()
    options = {"flag_values": values}
    DEFINE_path("model_dir", None, "The run.", FOLDER, required=True, **options)
    DEFINE_multi_path("ensemble", "Another run.", ANY, **options)
    DEFINE_number("beam_size", None, "Hypotheses; default: the setting of the run.", PositiveInt, **options)
    flags.DEFINE_enum("engine", "tensorflow", ["tensorflow", "other"], "What computes.", **options)
    DEFINE_number("a_rate", 0.5, "A rate.", Rate, **options)
    flags.DEFINE_bool("json", False, "Whether to write JSON.", **options)
    flags.DEFINE_string("fields", None, "Names of the required fields.", required=True, **options)
    flags.DEFINE_list("only", ["a", "b"], "Names of " + "very " * 20 + "long rows.", **options)
    module = types.ModuleType(NAME, DOC)
    for name in values:
        values.register_key_flag_for_module(NAME, values[name])
    return module, values


@pytest.fixture
def lines(module, monkeypatch):
    module, values = module
    monkeypatch.setattr(helping.flags, "FLAGS", values)
    return helping.text(module, "launch/translate.py").splitlines()


def section(lines: list[str], name: str) -> list[str]:
    begin = lines.index(f"{name}:") + 1
    return lines[begin : lines.index("", begin) if "" in lines[begin:] else None]


def test_flags_are_grouped_with_required_flags_first(lines):
    assert section(lines, "files and folders") == [
        "  --model_dir=PATH          The run. (required)",
        "  --ensemble=PATH           Another run. May be given several times.",
    ]
    assert section(lines, "search") == [
        "  --beam_size=N             Hypotheses; default: the setting of the run.",
        "  --engine=tensorflow|other",
        "                            What computes. (default: tensorflow)",
    ]
    assert [line.split()[0] for line in section(lines, "settings") if line.startswith("  --")] == [
        "--fields=TEXT",
        "--a_rate=NUMBER",
        "--[no]json",
        "--only=TEXT",
    ]
    assert "  -h, --help                Print this help and exit." in section(lines, "every program")


@pytest.mark.parametrize(("program", "is_required"), [("translate", True), ("score", True), ("evaluate", False)])
def test_shared_flags_are_required_by_some_programs(program, is_required):
    """`launch.evaluate` can score files without a model."""
    result = programs.run(["-m", f"launch.{program}", "--help"], capture_output=True, text=True)
    (words,) = re.findall(r"^  --model_dir=PATH +(.+)$", result.stdout, re.MULTILINE)
    assert words == "The directory of a run or of an export." + " (required)" * is_required


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("launch/serve.py", "run launch.train or python -m launch.fit; pip install '.[serve]'"),
        ("/venv/bin/t2t-serve", "run t2t-train or t2t-fit; pip install 't2t_keras[serve]'"),
        (
            "/venv/lib/t2t_keras/launch/serve.py",
            "run t2t_keras.launch.train or python -m t2t_keras.launch.fit; pip install 't2t_keras[serve]'",
        ),
    ],
)
def test_programs_are_named_like_the_typed_command(command, expected):
    assert helping.as_typed("run launch.train or python -m launch.fit; pip install '.[serve]'", command) == expected
