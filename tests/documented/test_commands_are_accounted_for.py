"""Every command of README and the documents is run by a test, or a table says why none does."""

import re

import pytest

from . import sizes
from .pages import COMMANDS, PAGES, Command

TABLES = {name: getattr(sizes, name) for name in ("APPENDED", "CHANGED", "NOT_RUN", "PACKAGES")}


def test_pages_have_commands() -> None:
    """So that the tests below cannot pass by seeing nothing."""
    assert {"README", "training", "convert"} <= {each.page for each in COMMANDS} <= {path.stem for path in PAGES}
    assert len(COMMANDS) > 200


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_is_of_some_command(name) -> None:
    unused = [row for row in TABLES[name] if not any(re.search(row[0], f"{command} ") for command in COMMANDS)]
    assert not unused


def test_every_command_is_run_or_has_a_reason() -> None:
    ways = "python|curl|diff|openssl|sacrebleu|sed|tensorboard"
    unknown = [each for each in COMMANDS if not sizes.reason_not_to_run(each) and not re.match(ways, each.words[0])]
    assert not unknown


def test_few_commands_are_not_run() -> None:
    """Of launch/ at most one; of others but long measurements all are of make, pip, a shell and a scheduler."""
    left_out = [each for each in COMMANDS if sizes.reason_not_to_run(each)]
    assert len([each for each in left_out if each.program]) <= 1
    assert len([each for each in left_out if each.module]) <= 10


def test_additions_come_before_what_is_redirected() -> None:
    command = Command("page", "python -m launch.train --model_dir=x --preset=tiny < in.txt > out.txt  # says")
    assert (command.program, command.stdin, command.stdout) == ("train", "in.txt", "out.txt")
    text = sizes.small(command).text
    assert text.startswith("python -m launch.train --model_dir=x --preset=tiny --set ")
    assert text.endswith(" < in.txt > out.txt  # says")
