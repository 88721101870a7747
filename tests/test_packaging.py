"""The installed package: public names, commands, and contents of the distributions."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import t2t_keras

ROOT = Path(__file__).parents[1]


def run_python(code: str, cwd: Path = ROOT, path: Path = ROOT) -> str:
    """The standard output of a new interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-P", "-c", code]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


def project() -> dict:
    """The section `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands() -> dict[str, str]:
    """Program by console command."""
    pattern = re.compile(r"^t2t_keras\.launch\.(\w+):run\Z")
    return {name: pattern.findall(function)[0] for name, function in project()["scripts"].items()}


def test_public_names_exist() -> None:
    assert sorted(t2t_keras.__all__) == t2t_keras.__all__
    for name in t2t_keras.__all__:
        value = getattr(t2t_keras, name)
        assert name in dir(t2t_keras)
        assert getattr(value, "__name__", name).split(".")[-1] == name
    with pytest.raises(AttributeError, match="no attribute 'Perceiver'"):
        _ = t2t_keras.Perceiver


def test_importing_the_package_does_not_import_keras() -> None:
    code = "import sys, t2t_keras; t2t_keras.ModelConfig; print({'keras', 'tensorflow', 'numpy'} & set(sys.modules))"
    assert run_python(code) == "set()\n"


def test_programs_and_commands_correspond() -> None:
    defines_run = set()
    for path in (ROOT / "launch").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        assigned = {
            ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        }
        if "run" in assigned or ("run" in functions and not functions["run"].args.args):
            defines_run.add(path.stem)
    assert set(commands().values()) == defines_run


def files_in(folder: Path) -> set[str]:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {file for file in files if "__pycache__" not in file and "_build" not in file}


def test_build_contains_programs_recipes_and_type_marker(tmp_path: Path) -> None:
    build = ["setup.py", "-q", "build_py", f"--build-lib={tmp_path}"]
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True, text=True)
    in_repository = {path.relative_to(ROOT) for path in (ROOT / "t2t_keras").rglob("*.py")}
    in_repository |= {Path("t2t_keras", path.relative_to(ROOT)) for path in (ROOT / "launch").rglob("*.py")}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.py")} == in_repository
    assert (tmp_path / "t2t_keras/py.typed").is_file()
    page, cluster = (files_in(tmp_path / "t2t_keras" / name) for name in ("serving/page", "launch/cluster"))
    assert page == files_in(ROOT / "t2t_keras/serving/page") and "index.html" in page
    assert cluster == files_in(ROOT / "launch/cluster") and {"slurm.sh", "serving/serve.yaml"} <= cluster
    assert os.access(tmp_path / "t2t_keras/launch/cluster/slurm.sh", os.X_OK)
    code = "from t2t_keras.launch import program; print(program.__file__)"
    assert Path(run_python(code, cwd=tmp_path, path=tmp_path).strip()).is_relative_to(tmp_path)


@pytest.mark.integration
def test_source_distribution_contains_the_files_of_its_tests(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", f"--egg-base={tmp_path}"], cwd=ROOT, check=True)
    listed = set((tmp_path / "t2t_keras.egg-info/SOURCES.txt").read_text(encoding="utf-8").splitlines())
    for folder in (".ci", ".github", "benchmarks", "docs", "launch", "t2t_keras", "tests"):
        assert {f"{folder}/{file}" for file in files_in(ROOT / folder)} <= listed, folder
    root_files = {
        "Makefile",
        "CITATION.cff",
        "MANIFEST.in",
        "pyproject.toml",
        ".editorconfig",
        ".pre-commit-config.yaml",
    }
    assert root_files | {"saved_models/README.md"} <= listed
    assert {path.name for path in ROOT.glob("*.md")} <= listed
    assert not [file for file in listed if "__pycache__" in file]


@pytest.mark.integration
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs the packages that only CI installs")
def test_tests_can_be_collected_without_the_packages_of_ci():
    """After `make venv`, collecting the tests must not fail without the packages that only CI installs."""
    extras = project()["optional-dependencies"]
    only_ci = {Requirement(line).name.lower() for line in [*extras["ci"], *extras["bench"]]}
    missing = [name for name, of in packages_distributions().items() if {each.lower() for each in of} <= only_ci]
    assert "jax" in missing
    code = f"""import sys, pytest
sys.modules.update(dict.fromkeys({missing}))
without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]  # hypothesis would read all modules for constants
raise SystemExit(pytest.main(["--collect-only", "--quiet", *without, "-m", "not slow"]))"""
    assert " tests collected" in run_python(code).splitlines()[-1]


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == t2t_keras.__version__
    versions = re.findall(r"^## (?:Unreleased: )?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == t2t_keras.__version__
    assert project()["dynamic"] == ["version"]
