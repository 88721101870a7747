"""The files for editors, commits and GitHub are valid, and agree with the project."""

import os
import re
import shlex
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
HOSTED = ROOT / ".github"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in HOSTED.glob("workflows/*.yml")}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def steps(workflow: str) -> list[dict]:
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]


def test_workflows_run_existing_commands() -> None:
    assert set(WORKFLOWS) == {"ci", "release"}
    for command in (step["run"] for workflow in WORKFLOWS for step in steps(workflow) if "run" in step):
        program, *arguments = shlex.split(command)
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE), command
        else:
            assert program == "test" or os.access(ROOT / program, os.X_OK), command


def test_ci_covers_every_python_and_tensorflow() -> None:
    (job,) = WORKFLOWS["ci"]["jobs"].values()
    classifiers = [line.rpartition(" :: ")[2] for line in PYPROJECT["project"]["classifiers"] if ":: 3." in line]
    assert job["strategy"]["matrix"]["python"] == classifiers
    usual = re.findall(r"^TENSORFLOW \?= (.+)$", MAKEFILE, re.MULTILINE)[0]
    other = re.findall(r"TENSORFLOW=(\S+) with any of these", MAKEFILE)[0]
    assert job["strategy"]["matrix"]["tensorflow"] == [other, usual]
    assert "${{ matrix.python }}" in job["container"] and job["env"]["TENSORFLOW"] == "${{ matrix.tensorflow }}"
    assert [step["run"] for step in steps("ci") if "run" in step] == [".ci/run"]


def test_releases_are_published_by_a_separate_job_without_a_password() -> None:
    release = WORKFLOWS["release"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML parses `on` as true
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert "permissions" not in build and release["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == ["ci", "build"]
    assert release["jobs"]["ci"] == {"uses": "./.github/workflows/ci.yml"} and "workflow_call" in WORKFLOWS["ci"][True]
    assert not [step for step in publish["steps"] if "run" in step]
    assert "secrets" not in str(release)
    artifacts = [step["with"] for step in steps("release") if "artifact" in step.get("uses", "")]
    assert len(artifacts) == 2 and {(files["name"], files["path"]) for files in artifacts} == {("dist", "dist/")}
