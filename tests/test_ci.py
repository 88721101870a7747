"""The script that checks every change: it skips nothing in silence."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("chromium", "chromedriver", "wrk", "shellcheck", "curl", "cc", "ip", "unshare", "msgfmt")


@pytest.fixture
def run(tmp_path: Path):
    """Runs a copy of the script with some programs, all of them stand-ins, as root or as somebody else."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "sort"):
        (programs / name).symlink_to(str(shutil.which(name)))

    def stand_in(name: str, text: str) -> None:
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)

    def run(*tools: str, user: int, apt_get: str = "exit 100") -> subprocess.CompletedProcess[str]:
        for name in tools:
            stand_in(name, "exit 1")
        stand_in("id", f"echo {user}")
        stand_in("make", 'echo "make $*"')
        stand_in("apt-get", f'echo "apt-get $*" >&2; {apt_get}')
        command = [programs / "bash", tmp_path / ".ci/run"]
        environment = {**os.environ, "PATH": str(programs), "PROGRAMS": str(programs)}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


def test_it_runs_everything_where_every_tool_is_there(run) -> None:
    done = run(*TOOLS, user=1000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "make ci\n", "")
