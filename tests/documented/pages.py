"""The shell commands of the README and the documents."""

import dataclasses
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [path for folder in (ROOT, ROOT / ".github", ROOT / "docs") for path in sorted(folder.glob("*.md"))]
BLOCK = re.compile(r"^```(\{?[\w-]*\}?)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        page: the name of the page without its suffix.
        text: the command on one line.
    """

    page: str
    text: str

    @functools.cached_property
    def _parts(self) -> tuple[dict[str, str], list[str], dict[str, str]]:
        words = shlex.split(self.text, comments=True)
        environment: dict[str, str] = {}
        files: dict[str, str] = {}
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, _, environment[name] = words.pop(0).partition("=")
        for sign in ("<", ">"):
            if sign in words:
                place = words.index(sign)
                files[sign] = words[place + 1]
                del words[place : place + 2]
        return environment, words, files

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables before the command."""
        return self._parts[0]

    @property
    def words(self) -> list[str]:
        """The command and its arguments, without redirections."""
        return self._parts[1]

    @property
    def stdin(self) -> str | None:
        """The file that is redirected to standard input."""
        return self._parts[2].get("<")

    @property
    def stdout(self) -> str | None:
        """The file to which standard output is redirected."""
        return self._parts[2].get(">")

    @property
    def module(self) -> str:
        """The module that `python -m` runs, or an empty string."""
        return self.words[2] if self.words[:2] == ["python", "-m"] else ""

    @property
    def program(self) -> str:
        """The name of a program of launch/, or an empty string."""
        return self.module.removeprefix("launch.") if self.module.startswith("launch.") else ""

    def values(self, *flags: str) -> list[str]:
        """The last value of each given flag, or all values of a repeatable flag."""
        flags_given = [word[2:].partition("=") for word in self.words if word.startswith("--") and "=" in word]
        result = []
        for flag in flags:
            values = [value for name, _, value in flags_given if name == flag]
            result += values if flag == "ensemble" else values[-1:]
        return result

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def _commands() -> Iterator[Command]:
    for path in PAGES:
        for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines() if language in ("", "sh", "bash") else ():
                if shlex.split(line, comments=True):
                    yield Command(path.stem, re.sub(r" {2,}(?=\S)", " ", line.strip()))


COMMANDS = list(_commands())
