"""What is installed: names, commands and packages are what they claim to be."""

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
    """Standard output of an interpreter that has imported nothing."""
    environment = {**os.environ, "PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def project() -> dict:
    """What pyproject.toml says of the package."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands() -> dict[str, str]:
    """The console commands and the programs they stand for."""
    pattern = re.compile(r"^t2t_keras\.launch\.(\w+):run\Z")
    return {name: pattern.findall(function)[0] for name, function in project()["scripts"].items()}


def test_every_public_name_is_there() -> None:
    assert sorted(t2t_keras.__all__) == t2t_keras.__all__
    for name in t2t_keras.__all__:
        value = getattr(t2t_keras, name)
        assert name in dir(t2t_keras)
        assert getattr(value, "__name__", name).split(".")[-1] == name
    with pytest.raises(AttributeError, match="no attribute 'Perceiver'"):
        _ = t2t_keras.Perceiver


def test_the_package_is_light_until_a_name_is_asked_for() -> None:
    code = "import sys, t2t_keras; t2t_keras.ModelConfig; print({'keras', 'tensorflow', 'numpy'} & set(sys.modules))"
    assert run_python(code) == "set()\n"


def test_every_program_has_a_command_and_every_command_a_program() -> None:
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


def in_folder(folder: Path) -> set[str]:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {file for file in files if "__pycache__" not in file and "_build" not in file}


def test_what_is_built_holds_the_programs_the_recipes_and_the_type_marker(tmp_path: Path) -> None:
    build = ["setup.py", "-q", "build_py", f"--build-lib={tmp_path}"]
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True, text=True)
    in_repository = {path.relative_to(ROOT) for path in (ROOT / "t2t_keras").rglob("*.py")}
    in_repository |= {Path("t2t_keras", path.relative_to(ROOT)) for path in (ROOT / "launch").rglob("*.py")}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.py")} == in_repository
    assert (tmp_path / "t2t_keras/py.typed").is_file()
    page, cluster = (in_folder(tmp_path / "t2t_keras" / name) for name in ("serving/page", "launch/cluster"))
    assert page == in_folder(ROOT / "t2t_keras/serving/page") and "index.html" in page
    assert cluster == in_folder(ROOT / "launch/cluster") and {"slurm.sh", "serving/serve.yaml"} <= cluster
    assert os.access(tmp_path / "t2t_keras/launch/cluster/slurm.sh", os.X_OK)
    code = "from t2t_keras.launch import program; print(program.__file__)"
    assert Path(run_python(code, cwd=tmp_path, path=tmp_path).strip()).is_relative_to(tmp_path)


@pytest.mark.integration
def test_the_source_distribution_holds_what_its_tests_read(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", f"--egg-base={tmp_path}"], cwd=ROOT, check=True)
    listed = set((tmp_path / "t2t_keras.egg-info/SOURCES.txt").read_text(encoding="utf-8").splitlines())
    for folder in (".ci", ".github", "benchmarks", "docs", "launch", "t2t_keras", "tests"):
        assert {f"{folder}/{file}" for file in in_folder(ROOT / folder)} <= listed, folder
    beside = {"Makefile", "CITATION.cff", "MANIFEST.in", "pyproject.toml", ".editorconfig", ".pre-commit-config.yaml"}
    assert beside | {"saved_models/README.md"} <= listed
    assert {path.name for path in ROOT.glob("*.md")} <= listed
    assert not [file for file in listed if "__pycache__" in file]


@pytest.mark.integration
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="what only ci installs is not installed")
def test_all_tests_are_found_without_what_only_ci_installs():
    """As after `make venv`: a file of tests may leave them out, and must not fail to be read."""
    extras = project()["optional-dependencies"]
    only_ci = {Requirement(line).name.lower() for line in [*extras["ci"], *extras["bench"]]}
    missing = [name for name, of in packages_distributions().items() if {each.lower() for each in of} <= only_ci]
    assert "jax" in missing
    code = f"""import sys, pytest
sys.modules.update(dict.fromkeys({missing}))
without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]  # which would read all modules for their constants
raise SystemExit(pytest.main(["--collect-only", "--quiet", *without, "-m", "not slow"]))"""
    assert " tests collected" in run_python(code).splitlines()[-1]


def test_one_version_is_written_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == t2t_keras.__version__
    versions = re.findall(r"^## (?:Unreleased: )?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == t2t_keras.__version__
    assert project()["dynamic"] == ["version"]
