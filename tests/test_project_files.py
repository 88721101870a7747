"""The files for editors, commits and the place where the repository is hosted: sound, and about what is there."""

import configparser
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOSTED = ROOT / ".github"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in HOSTED.glob("workflows/*.yml")}
FORMS = sorted(path for path in HOSTED.glob("ISSUE_TEMPLATE/*.yml") if path.stem != "config")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def steps(workflow: str) -> list[dict]:
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]


def test_workflows_run_what_is_there() -> None:
    assert set(WORKFLOWS) == {"ci", "release"}
    for command in (step["run"] for workflow in WORKFLOWS for step in steps(workflow) if "run" in step):
        program, *arguments = shlex.split(command)
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE), command
        else:
            assert program == "test" or os.access(ROOT / program, os.X_OK), command


def test_every_change_is_checked_with_every_python_and_tensorflow() -> None:
    (job,) = WORKFLOWS["ci"]["jobs"].values()
    classifiers = [line.rpartition(" :: ")[2] for line in PYPROJECT["project"]["classifiers"] if ":: 3." in line]
    assert job["strategy"]["matrix"]["python"] == classifiers
    usual = re.findall(r"^TENSORFLOW \?= (.+)$", MAKEFILE, re.MULTILINE)[0]
    other = re.findall(r"TENSORFLOW=(\S+) with any of them", MAKEFILE)[0]
    assert job["strategy"]["matrix"]["tensorflow"] == [other, usual]
    assert "${{ matrix.python }}" in job["container"] and job["env"]["TENSORFLOW"] == "${{ matrix.tensorflow }}"
    assert [step["run"] for step in steps("ci") if "run" in step] == [".ci/run"]


def test_a_release_that_passes_is_published_without_a_password_by_the_job_that_does_nothing_else() -> None:
    release = WORKFLOWS["release"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as a truth value
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert "permissions" not in build and release["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == ["ci", "build"]
    assert release["jobs"]["ci"] == {"uses": "./.github/workflows/ci.yml"} and "workflow_call" in WORKFLOWS["ci"][True]
    assert not [step for step in publish["steps"] if "run" in step]
    assert "secrets" not in str(release)
    handed_on = [step["with"] for step in steps("release") if "artifact" in step.get("uses", "")]
    assert len(handed_on) == 2 and {(files["name"], files["path"]) for files in handed_on} == {("dist", "dist/")}


def test_actions_are_named_with_their_major_version() -> None:
    names = [step["uses"] for workflow in WORKFLOWS for step in steps(workflow) if "uses" in step]
    assert names and all(re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", name) for name in names)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_ask_something(form: Path) -> None:
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert set(content) == {"name", "description", "labels", "body"}
    questions = [field for field in content["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in questions} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in questions}) == len(questions)
    assert all(field["attributes"]["label"] for field in questions)
    assert any(field.get("validations", {}).get("required") for field in questions)
    for path in re.findall(r"[\w./]+\.md", str(content)):
        assert (ROOT / path).is_file(), path


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]
    assert yaml.safe_load((HOSTED / "ISSUE_TEMPLATE/config.yml").read_text(encoding="utf-8")) == {
        "blank_issues_enabled": False
    }


def test_commits_are_checked_with_the_ruff_of_the_project() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook for repository in config["repos"] for hook in repository["hooks"]}
    assert set(hooks) == {"end-of-file-fixer", "trailing-whitespace", "ruff-check", "ruff-format"}
    (ruff,) = [name for name in PYPROJECT["project"]["optional-dependencies"]["dev"] if name.startswith("ruff")]
    for name in ("ruff-check", "ruff-format"):
        assert hooks[name]["additional_dependencies"] == [ruff] and "==" in ruff
        assert f"-m {hooks[name]['entry']} ." in MAKEFILE
    assert (ROOT / config["exclude"].removeprefix("^")).is_dir()


def test_editors_indent_as_the_files_are() -> None:
    config = configparser.ConfigParser()
    config.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    assert config["top"]["root"] == "true" and config["Makefile"]["indent_style"] == "tab"
    assert config["*.{py,toml}"]["max_line_length"] == str(PYPROJECT["tool"]["ruff"]["line-length"])
