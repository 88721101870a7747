"""The extras can be installed beside each TensorFlow, on each Python: resolved with a package index, not installed.

What can be installed together can be installed one by one, so extras are resolved in groups.
"""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TENSORFLOWS = ("2.20", "2.21")
PYTHONS = ("3.11", "3.12", "3.13")
GROUPS = {
    "users": ("serve", "tasks", "jax", "fast", "detect", "data", "convert", "localization", "remote", "bfloat16"),
    "beam": ("beam",),
}
# Gigabytes of CUDA, and what only the project's own developers install.
LEFT_OUT = {"gpu", "bench", "dev", "docs", "ci"}
# Packages without wheels, all of them plain Python, with what they ask for: pip resolves for another Python than its
# own with wheels alone, and these stand in for them.
WITHOUT_WHEELS = {
    "promise-2.3": ("six",),
    "rouge_score-0.1.2": ("absl-py", "nltk", "numpy", "six>=1.14.0"),
    "seqeval-1.2.2": ("numpy>=1.14.0", "scikit-learn>=0.21.3"),
    "crcmod-1.7": (),
    "docopt-0.6.2": (),
    "hdfs-2.7.3": ("docopt", "requests>=2.7.0", "six>=1.9.0"),
}


def pip(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """A folder of the stand-ins; the test is skipped where no package index answers."""
    if pip("index", "versions", "--retries=0", "--timeout=10", "six").returncode:
        pytest.skip("no package index answers")
    folder = tmp_path_factory.mktemp("wheels")
    for name, asked in WITHOUT_WHEELS.items():
        project, version = name.split("-")
        lines = ["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in asked]
        with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.dist-info/METADATA", "\n".join(lines) + "\n")
            wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{name}.dist-info/RECORD", "")
    return folder


def resolved(requirements: list[str], python: str, wheels: Path, folder: Path) -> dict[str, str]:
    """The versions that pip would install; an AssertionError has what it says where there are none."""
    report = folder / "report.json"
    where = ["--target", str(folder / "target"), "--report", str(report), f"--find-links={wheels}"]
    what = ["--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:", f"--python-version={python}"]
    done = pip("install", *what, *where, *requirements)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "ERROR" in line)
    metadata = [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {canonicalize_name(item["name"]): item["version"] for item in metadata}


def test_every_extra_is_in_a_group():
    assert {extra for group in GROUPS.values() for extra in group} | LEFT_OUT == set(EXTRAS)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("tensorflow", TENSORFLOWS)
@pytest.mark.parametrize("group", GROUPS)
def test_extras_can_be_installed(tmp_path, wheels, group, tensorflow, python):
    requirements = [*PROJECT["dependencies"], *(line for extra in GROUPS[group] for line in EXTRAS[extra])]
    versions = resolved([*requirements, f"tensorflow=={tensorflow}.*"], python, wheels, tmp_path)
    assert versions["tensorflow"].startswith(f"{tensorflow}.")
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(versions[name]), f"{requirement}: {versions[name]}"
