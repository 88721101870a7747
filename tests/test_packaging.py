"""What is installed: names, commands and packages are what they claim to be."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import t2t_keras

ROOT = Path(__file__).parents[1]
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


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


def test_make_leaves_compiling_to_all_cores(tmp_path: Path) -> None:
    """pip sets with its variable what the flag would make false, so that 1 compiles."""
    (value,) = re.findall(r"^export PIP_NO_COMPILE := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    wheel = tmp_path / "made-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("made.py", "")
        file.writestr("made-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1\n")
        file.writestr("made-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("made-1.dist-info/RECORD", "made.py,,\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        f"--target={tmp_path / 'to'}",
        str(wheel),
    ]
    subprocess.run(command, env={**os.environ, "PIP_NO_COMPILE": value}, capture_output=True, check=True)
    assert (tmp_path / "to" / "made.py").exists() and not list((tmp_path / "to").rglob("*.pyc"))


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


def test_tensorflow_text_is_of_the_minor_version_of_tensorflow() -> None:
    """Its ops load in no other; the two are installed without either being named."""
    minor = {name: version(name).split(".")[:2] for name in ("tensorflow", "tensorflow-text", "tensorflow-serving-api")}
    assert minor["tensorflow-text"] == minor["tensorflow"] == minor["tensorflow-serving-api"]
    assert ".".join(minor["tensorflow"]) in ("2.20", "2.21")


@pytest.mark.parametrize(
    ("arguments", "folder", "tensorflow"),
    [([], ".venv", "2.21"), (["TENSORFLOW=2.21"], ".venv", "2.21"), (["TENSORFLOW=2.20"], ".venv-2.20", "2.20")],
)
@pytest.mark.parametrize("target", ["test", "slow", "faults", "quickstart"])
def test_make_keeps_an_environment_for_each_tensorflow(
    target: str, arguments: list[str], folder: str, tensorflow: str, tmp_path: Path
) -> None:
    """As `make --dry-run` prints what it would run, in a copy where nothing is installed yet."""
    for name in ("Makefile", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    make = ["make", "--dry-run", target, "PYTHON=python3", *arguments]
    # What a `make` that runs this test, as `make ci TENSORFLOW=2.20` does, would hand on.
    handed_on = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "TENSORFLOW")
    environment = {name: value for name, value in os.environ.items() if name not in handed_on}
    answer = subprocess.run(make, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    lines = answer.stdout.splitlines()
    assert f"{folder}/bin/python -m pip install --editable '.[dev,serve]' 'tensorflow=={tensorflow}.*'" in lines
    assert lines[-1].startswith(f"{folder}/bin/python -m ")


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


@pytest.mark.slow
@pytest.mark.parametrize("beside", [None, "protobuf<7"])
@pytest.mark.parametrize("tensorflow", ["2.20", "2.21"])
def test_pip_finds_packages_of_one_tensorflow(tensorflow: str, beside: str | None, tmp_path: Path) -> None:
    """From the index, for somebody who names TensorFlow alone, or also has a package that wants an older protobuf."""
    report = tmp_path / "report.json"
    install = ["install", "--dry-run", "--ignore-installed", f"--report={report}", f"{ROOT}[serve]"]
    install += [f"tensorflow=={tensorflow}.*", *filter(None, [beside])]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    packages = [package["metadata"] for package in json.loads(report.read_text(encoding="utf-8"))["install"]]
    versions = {package["name"].replace("_", "-"): package["version"] for package in packages}
    for name in ("tensorflow", "tensorflow-text", "tensorflow-serving-api"):
        assert versions[name].startswith(f"{tensorflow}."), versions
    assert versions["keras"].startswith("3.15."), versions


def test_no_sentencepiece_is_taken_that_needs_a_newer_protobuf_than_it_asks_for() -> None:
    """From 0.2.3 on its code is generated for protobuf 7, and with an older one it cannot be imported."""
    requirements = {each.name: each.specifier for each in map(Requirement, project()["dependencies"])}
    versions = ["0.2.1", "0.2.2", "0.2.3", "0.2.4", "0.3"]
    assert list(requirements["sentencepiece"].filter(versions)) == versions[:2]


@pytest.mark.slow
def test_data_is_prepared_beside_protobuf_6(tmp_path: Path) -> None:
    """In an environment that has protobuf and SentencePiece of its own, and the rest from this one."""
    venv.create(tmp_path / "six")
    python = tmp_path / "six/bin/python"
    packages_here, packages_there = (
        Path(subprocess.run([path, "-c", SITE], check=True, capture_output=True, text=True).stdout.strip())
        for path in (sys.executable, python)
    )
    (sentencepiece,) = (line for line in project()["dependencies"] if line.startswith("sentencepiece"))
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "protobuf>=6,<7", sentencepiece], check=True)
    (packages_there / "others.pth").write_text(f"{packages_here}\n", encoding="utf-8")
    lines = [f"line {number} of some text" for number in range(3000)]
    (tmp_path / "a.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("\n".join(lines).upper() + "\n", encoding="utf-8")
    files = f"--train_source={tmp_path / 'a.en'}", f"--train_target={tmp_path / 'a.de'}"
    flags = ["--corpus=files", *files, "--vocab_size=290", f"--data_dir={tmp_path / 'data'}"]
    code = (
        "import google.protobuf; assert google.protobuf.__version__.startswith('6.'); import launch.prepare_data as p"
    )
    subprocess.run([python, "-c", f"{code}; p.run()", *flags], check=True, cwd=ROOT)
    assert (tmp_path / "data/data.json").is_file()


def test_one_version_is_written_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == t2t_keras.__version__
    versions = re.findall(r"^## (?:Unreleased: )?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == t2t_keras.__version__
    assert project()["dynamic"] == ["version"]
