"""The script that builds a release: it rejects uncommitted changes, and does not publish."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
Release = Callable[[], subprocess.CompletedProcess[str]]
# Replaces Python: logs its arguments, and the files of the folder that is built.
FAKE_PYTHON = """#!/usr/bin/env bash
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
    """A repository of version 1.2.3 without uncommitted changes, with files of an earlier release and build."""
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
    for leftover in ("dist/t2t_keras-1.2.2.tar.gz", "build/left.py"):
        (folder / leftover).parent.mkdir()
        (folder / leftover).touch()
    return folder


@pytest.fixture
def release(project: Path, tmp_path: Path) -> Release:
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    environment = {**os.environ, "LOG": str(tmp_path / "log")}
    command = [project / ".ci/release", python]
    return lambda: subprocess.run(command, env=environment, capture_output=True, text=True)


def test_release_script_builds_and_checks_committed_files(project: Path, release: Release, tmp_path: Path) -> None:
    result = release()
    assert (result.returncode, result.stderr) == (0, "")
    installed, built, *committed, checked = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert installed.startswith("-m pip install ") and built.startswith("-m build --outdir dist ")
    assert committed == ["./.ci/release", "./.gitignore", "./CHANGELOG.md", "./t2t_keras/__init__.py"]
    assert checked == "-m twine check --strict dist/t2t_keras-1.2.3.tar.gz"
    assert [path.name for path in (project / "dist").iterdir()] == ["t2t_keras-1.2.3.tar.gz"]
    assert "git tag --annotate v1.2.3" in result.stdout and "git push origin v1.2.3" in result.stdout
    tags = subprocess.run(["git", "tag"], cwd=project, check=True, capture_output=True, text=True)
    assert tags.stdout == ""


@pytest.mark.parametrize("file", ["CHANGELOG.md", "new.txt"])
def test_uncommitted_changes_are_rejected(file: str, project: Path, release: Release, tmp_path: Path) -> None:
    with (project / file).open("a", encoding="utf-8") as opened_file:
        opened_file.write("more\n")
    result = release()
    assert result.returncode == 1 and not (tmp_path / "log").exists()
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: uncommitted changes: ") and file in line
