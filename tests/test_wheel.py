"""The wheel in an environment of its own: its commands run there, with the extra `serve` and without it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]

# Loads what every command would call, one after the other: flags of two programs cannot live together.
LOAD_COMMANDS = """
import sys
from importlib import metadata
from absl import flags

for command in metadata.distribution("t2t_keras").entry_points:
    for name in [name for name in sys.modules if name.startswith("t2t_keras.launch")]:
        del sys.modules[name]
    flags.FLAGS.__dict__["__flags"].clear()
    command.load()
    print(command.name, sys.modules[command.module].__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing which an earlier build left behind gets into it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("t2t_keras", "launch"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        f"--wheel-dir={target}",
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Made by `pip install .`: the packages are links to those of this environment, except for those of the extras."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    left_out = of_extra("serve", wheel) | {"t2t_keras"}
    target = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if package.suffix != ".pth" and package.name.split("-")[0] not in left_out and "editable" not in package.name:
            (target / package.name).symlink_to(package)
    install(folder, "--no-deps", "--no-index", str(wheel))
    return folder


def install(environment: Path, *arguments: str) -> None:
    # Without PYTHONPATH, in which pip would see the package as installed.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, *arguments], check=True, env=variables)


def of_extra(extra: str, wheel: Path) -> set[str]:
    """The first parts of the paths that an extra's packages, without what they require, have in site-packages."""
    (built,) = metadata.distributions(path=[str(wheel)])
    requirements = map(Requirement, built.requires or [])
    chosen = [r.name for r in requirements if r.marker and r.marker.evaluate({"extra": extra})]
    files = [file for name in chosen for file in metadata.files(name) or []]
    return {file.parts[0].split("-")[0] for file in files} - {".."}


def run(environment: Path, command: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment / "bin" / command, *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def test_every_command_is_there_and_leads_into_the_wheel(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "python", "-c", LOAD_COMMANDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = dict(line.split() for line in done.stdout.splitlines())
    assert set(loaded) == {path.name for path in (environment / "bin").glob("t2t-*")}
    assert {"t2t-train", "t2t-quickstart", "t2t-serve"} <= set(loaded)
    assert all(Path(file).is_relative_to(environment) for file in loaded.values())


def test_a_command_runs_in_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "t2t-describe", "--preset=tiny", "--vocab_size=8000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "parameters" in done.stdout


def test_serving_without_its_extra_says_in_one_line_what_to_install(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "t2t-serve", f"--export_dir={tmp_path}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(" is missing: pip install 't2t_keras[serve]'")
