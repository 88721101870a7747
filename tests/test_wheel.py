"""The wheel in a separate environment, with and without the extra `serve`."""

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

# Loads the functions of all commands one after the other. Two programs may define the same flag.
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
    """The wheel, built from a copy, so that it cannot contain files of an earlier build."""
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
    (wheel_file,) = target.iterdir()
    return wheel_file


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment after `pip install .`, with links to the packages here, except those of extras."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    excluded = packages_of_extra("serve", wheel) | {"t2t_keras"}
    target = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if package.suffix != ".pth" and package.name.split("-")[0] not in excluded and "editable" not in package.name:
            (target / package.name).symlink_to(package)
    install(folder, "--no-deps", "--no-index", str(wheel))
    return folder


def install(environment: Path, *arguments: str) -> None:
    # With PYTHONPATH, pip would consider the package installed.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, *arguments], check=True, env=variables)


def packages_of_extra(extra: str, wheel: Path) -> set[str]:
    """The names in site-packages of the packages of an extra, without their requirements."""
    (wheel_file,) = metadata.distributions(path=[str(wheel)])
    requirements = map(Requirement, wheel_file.requires or [])
    required = [r.name for r in requirements if r.marker and r.marker.evaluate({"extra": extra})]
    files = [file for name in required for file in metadata.files(name) or []]
    return {file.parts[0].split("-")[0] for file in files} - {".."}


def run(environment: Path, command: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment / "bin" / command, *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def test_commands_exist_and_import_the_wheel(environment: Path, tmp_path: Path) -> None:
    result = run(environment, "python", "-c", LOAD_COMMANDS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    module_files = dict(line.split() for line in result.stdout.splitlines())
    assert set(module_files) == {path.name for path in (environment / "bin").glob("t2t-*")}
    assert {"t2t-train", "t2t-quickstart", "t2t-serve"} <= set(module_files)
    assert all(Path(file).is_relative_to(environment) for file in module_files.values())


def test_commands_run_in_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    result = run(environment, "t2t-describe", "--preset=tiny", "--vocab_size=8000", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "parameters" in result.stdout


def test_serving_without_its_extra(environment: Path, tmp_path: Path) -> None:
    result = run(environment, "t2t-serve", f"--export_dir={tmp_path}", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(" is missing: pip install 't2t_keras[serve]'")
