"""The script that builds what is published: it refuses what should not be, and publishes nothing."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
Release = Callable[[], subprocess.CompletedProcess[str]]
# In place of Python: writes down what it is to do, and what the folder holds that it is to build.
STAND_IN = """#!/usr/bin/env bash
echo "$*" >> "$LOG"
if [[ $2 == build ]]; then
  (cd "${@: -1}" && find . -type f | sort >> "$LOG")
  mkdir -p dist && touch dist/t2t_keras-1.2.3.tar.gz
fi
"""


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of version 1.2.3, all of it committed, with what an earlier release and a build left behind."""
    folder = tmp_path / "project"
    (folder / ".ci").mkdir(parents=True)
    (folder / "t2t_keras").mkdir()
    shutil.copy(ROOT / ".ci/release", folder / ".ci")
    (folder / "t2t_keras/__init__.py").write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-01-31\n", encoding="utf-8")
    (folder / ".gitignore").write_text("dist/\nbuild/\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    for left in ("dist/t2t_keras-1.2.2.tar.gz", "build/left.py"):
        (folder / left).parent.mkdir()
        (folder / left).touch()
    return folder


@pytest.fixture
def release(project: Path, tmp_path: Path) -> Release:
    python = tmp_path / "python"
    python.write_text(STAND_IN, encoding="utf-8")
    python.chmod(0o755)
    environment = {**os.environ, "LOG": str(tmp_path / "log")}
    command = [project / ".ci/release", python]
    return lambda: subprocess.run(command, env=environment, capture_output=True, text=True)


def test_it_builds_and_checks_what_is_committed_and_says_how_to_publish_it(
    project: Path, release: Release, tmp_path: Path
) -> None:
    done = release()
    assert (done.returncode, done.stderr) == (0, "")
    installed, built, *held, checked = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert installed.startswith("-m pip install ") and built.startswith("-m build --outdir dist ")
    assert held == ["./.ci/release", "./.gitignore", "./CHANGELOG.md", "./t2t_keras/__init__.py"]
    assert checked == "-m twine check --strict dist/t2t_keras-1.2.3.tar.gz"
    assert [path.name for path in (project / "dist").iterdir()] == ["t2t_keras-1.2.3.tar.gz"]
    assert "git tag --annotate v1.2.3" in done.stdout and "git push origin v1.2.3" in done.stdout
    tags = subprocess.run(["git", "tag"], cwd=project, check=True, capture_output=True, text=True)
    assert tags.stdout == ""


@pytest.mark.parametrize("file", ["CHANGELOG.md", "new.txt"])
def test_it_refuses_what_is_not_committed(file: str, project: Path, release: Release, tmp_path: Path) -> None:
    with (project / file).open("a", encoding="utf-8") as opened:
        opened.write("more\n")
    done = release()
    assert done.returncode == 1 and not (tmp_path / "log").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: not committed: ") and file in line
