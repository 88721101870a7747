"""A test runs each command of the README and the documents, or a table gives the reason why not."""

import re

import pytest

from . import sizes
from .pages import COMMANDS

TABLES = {name: getattr(sizes, name) for name in ("APPENDED_FLAGS", "REPLACED", "NOT_RUN", "PACKAGES")}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_matches_a_command(name) -> None:
    unused = [row for row in TABLES[name] if not any(re.search(row[0], f"{command} ") for command in COMMANDS)]
    assert not unused


def test_every_command_is_run_or_excluded_with_a_reason() -> None:
    ways = "python|curl|diff|openssl|sacrebleu|sed|tensorboard"
    unknown = [each for each in COMMANDS if not sizes.reason_not_to_run(each) and not re.match(ways, each.words[0])]
    assert not unknown
