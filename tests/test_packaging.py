"""What is installed and what the documents say: names, commands, links and code are what they claim to be."""

import ast
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import t2t_keras
from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.sources import packages
from t2t_keras.data.sources.corpora import NAMES
from tests import programs

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for folder in (ROOT, ROOT / ".github", ROOT / "docs") for path in sorted(folder.glob("*.md"))]
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_python(code: str, cwd: Path = ROOT, path: Path = ROOT) -> str:
    """Standard output of an interpreter that has imported nothing."""
    environment = {**os.environ, "PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_code(code: str, cwd: Path = ROOT, stdin: str = "") -> str:
    """Standard output of a process of its own."""
    done = programs.run(["-c", code], cwd=cwd, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def project() -> dict:
    """What pyproject.toml says of the package."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands() -> dict[str, str]:
    """The console commands and the programs they stand for."""
    pattern = re.compile(r"^t2t_keras\.launch\.(\w+):run\Z")
    return {name: pattern.findall(function)[0] for name, function in project()["scripts"].items()}


def documented(*languages: str) -> list[tuple[str, str]]:
    """The code blocks of all documents in some languages: the document's name and the block."""
    found = []
    for document in DOCUMENTS:
        blocks = BLOCK.findall(document.read_text(encoding="utf-8"))
        found += [(document.name, code) for language, code in blocks if language in languages]
    return found


def documented_commands() -> list[tuple[str, list[str]]]:
    """Every line of a block without a language, as a shell splits it; comments and redirections left out."""
    found = []
    for name, code in documented("", "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            ends = [index for index, word in enumerate(words) if word in ("<", ">", "|", "&")]
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
                ends = [index - 1 for index in ends]
            found.append((name, words[: min(ends, default=None)]))
    return [(name, words) for name, words in found if words]


def python_commands(package: str) -> list[tuple[str, str, list[str]]]:
    """Those of the form `python -m package.program flags`: document, program, flags."""
    prefix = f"{package}."
    return [
        (name, words[2].removeprefix(prefix), words[3:])
        for name, words in documented_commands()
        if words[:2] == ["python", "-m"] and words[2].startswith(prefix)
    ]


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


@pytest.mark.integration
def test_layers_and_model_ask_for_no_tensorflow() -> None:
    """Whoever imports it must be Keras's backend, or the kernels for that backend."""
    code = """
import builtins
real_import = builtins.__import__

def watched(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name.split(".")[0] == "tensorflow" and importer.startswith("t2t_keras"):
        print(importer)
    return real_import(name, globals, locals, fromlist, level)

builtins.__import__ = watched
from t2t_keras import Transformer, layers, losses, schedules
from t2t_keras.models import presets
from t2t_keras.text import tokenizer
print("imported")
"""
    importers = run_python(code).splitlines()
    assert set(importers) <= {"t2t_keras.kernels.tensorflow", "imported"} and "imported" in importers


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
raise SystemExit(pytest.main(["--collect-only", "--quiet", "-p", "no:cacheprovider", "-m", "not slow"]))"""
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


@pytest.mark.integration
def test_documented_programs_take_the_flags_they_are_given() -> None:
    """Each is parsed by the program itself, settings included."""
    code = """
import importlib, json, sys
from absl import flags
from t2t_keras import config
from t2t_keras.models import presets

failures = []
for document, program, arguments in json.load(sys.stdin):
    for name in [name for name in sys.modules if name.split(".")[0] == "launch"]:
        del sys.modules[name]
    flags.FLAGS.__dict__["__flags"].clear()
    flags.FLAGS.unparse_flags()
    try:
        importlib.import_module(f"launch.{program}")
        rest = flags.FLAGS([program, *arguments])[1:]
        if rest:
            failures.append(f"{document}: {program} takes no {rest}")
        values = flags.FLAGS.flag_values_dict()
        if values.get("preset") and not values.get("extension"):  # whose presets a test of their own has
            presets.preset(values["preset"])
        config.override(config.Config(), values.get("set") or [])
    except Exception as error:
        failures.append(f"{document}: {program} {arguments}: {error!r}")
print(json.dumps(failures))
"""
    found = python_commands("launch")
    programs = {program for _, program, _ in found}
    assert programs == set(commands().values())
    assert json.loads(run_code(code, stdin=json.dumps(found))) == []


def test_documented_benchmarks_take_the_flags_they_are_given() -> None:
    for document, program, arguments in python_commands("benchmarks"):
        source = (ROOT / "benchmarks" / f"{program}.py").read_text(encoding="utf-8")
        for flag in arguments:
            assert f'"{flag.split("=")[0]}"' in source, f"{document}: {program} has no {flag}"


BESIDE_A_MODEL = (ROOT / "t2t_keras" / "formats" / "graphs" / "standalone.py").read_text(encoding="utf-8")


def test_every_other_documented_command_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document, words in documented_commands():
        if words[0] == "make":
            assert words[1] in targets, f"{document}: make {words[1]}"
        elif words[0] == "python":
            is_module = words[1] == "-m" and words[2].split(".")[0] in ("launch", "benchmarks", "venv")
            is_beside_a_model = Path(words[1]).name == "translate.py"  # formats/graphs/standalone.py in a new folder
            if is_beside_a_model:
                assert all(f'"{word.split("=")[0]}"' in BESIDE_A_MODEL for word in words[2:] if word[:2] == "--"), words
            assert is_module or is_beside_a_model or (ROOT / words[1]).is_file(), (document, words)
        elif words[0].startswith("t2t-"):
            assert words[0] in commands(), f"{document}: {words[0]}"
        else:
            others = ("cd", "curl", "diff", "git", "pip", "sacrebleu", "sbatch", "source", "tensorboard")
            assert words[0] in others, (document, words)
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        of_tensor2tensor = {"t2t-bleu", "t2t-exporter"} if path.name == "coming_from.md" else set()
        assert set(re.findall(r"`(t2t-[a-z]+)`", text)) - of_tensor2tensor <= set(commands()), path.name
        assert {f"launch.{name}" for name in commands().values()} >= set(re.findall(r"\blaunch\.\w+", text)) - {
            "launch.NAME"
        }, path.name


def test_one_version_is_written_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == t2t_keras.__version__
    versions = re.findall(r"^## (?:Unreleased: )?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == t2t_keras.__version__
    assert project()["dynamic"] == ["version"]


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if not link.startswith("https://"):
                assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_documents_describe_every_corpus_and_reason() -> None:
    data = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    for name in (*NAMES, *REASONS):
        assert f"`{name}`" in data, name


def test_documents_name_the_licence_of_every_package_of_the_gettext_corpus() -> None:
    data = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    section = data.partition("### Licences of the text in packages")[2].partition("\n## ")[0]
    tables = section.split("| licence | packages |")[1:]
    for table, pins in zip(tables, (packages.GETTEXT, packages.DOCSTRINGS), strict=True):
        rows = re.findall(r"^\| ([A-Z][\w.-]+) \| (.+) \|$", table, re.MULTILINE)
        named = [re.sub(r" \(.*\)", "", name) for _, names in rows for name in names.split(", ")]
        assert sorted(named) == sorted(pin.name for pin in pins)


def python_blocks(document: str) -> list[str]:
    return [code for name, code in documented("python") if name == document]


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the blocks of docs/python.md were run in order, on a small corpus and for a moment; what they printed."""
    folder = tmp_path_factory.mktemp("reader")
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    lines = [" ".join(words[(row // 7**place) % 7] for place in range(4)) for row in range(1500)]
    (folder / "a.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "a.de").write_text("\n".join(line.upper() for line in lines) + "\n", encoding="utf-8")
    first, *_, last = python_blocks("python.md")  # test_from_python.py runs those of the Transformer as a Keras model
    code = f"{first}\n{last}"
    code = code.replace("vocab_size=8000", "vocab_size=290").replace("max_minutes=30", "max_steps=2")
    code = code.replace('"train.max_steps=2"', '"train.max_steps=2", "model.num_encoder_layers=1"')
    assert "max_steps=2" in code and "num_encoder_layers=1" in code
    return folder, run_code(code, cwd=folder)


def test_every_block_of_python_is_run_by_a_test_here() -> None:
    blocks = {name: len(python_blocks(name)) for name, _ in documented("python")}
    assert blocks == {
        **{"attention.md": 1, "change_the_model.md": 2, "convert.md": 2, "python.md": 4, "translator.md": 3},
        "markup.md": 1,  # by inference/test_marked_text.py
        "results.md": 1,
        "scaling_preparation.md": 1,  # by data/test_dask.py
        "README.md": 1,
    }


@pytest.mark.integration
def test_code_from_python_runs(readers_folder: tuple[Path, str]) -> None:
    score = float(readers_folder[1].splitlines()[-1].split()[-1])
    assert score < 0


@pytest.mark.integration
def test_code_about_translating_runs_on_that_run(readers_folder: tuple[Path, str]) -> None:
    translated, in_parts, explained = python_blocks("translator.md")
    result = """
print("=====")
print(explained.word_alignment(), str(words), sep="\\n")
print(explained.attention.cross.shape, len(explained.token_log_probs), explanation.attention.cross.shape)
"""
    code = "\n".join([translated, explained, "explained = explanation", in_parts, result])
    printed, facts = run_code(code, cwd=readers_folder[0]).split("=====\n")
    lines = printed.splitlines()
    # A translation with its score and its tokens of each of two lines, then the best of each with two others.
    assert all(re.fullmatch(r".* -?[\d.]+ \d+", line) for line in lines[:2])
    assert lines[1].startswith("Der") and "läuft" in lines[1] and "schnell" not in lines[1]
    assert len(lines) == 4 and all(line.endswith("]") for line in lines[2:])
    alignment, words, shapes = facts.splitlines()
    assert re.fullmatch(r"(\d+-\d+ ?)*", alignment) and re.fullmatch(r"(\d+-\d+ ?)*", words)
    layers, heads, targets, _, num_log_probs, *others = map(int, re.findall(r"\d+", shapes))
    assert (layers, heads) == tuple(others[:2])
    assert targets == num_log_probs


@pytest.mark.integration
def test_code_of_the_readme_runs_on_that_run(readers_folder: tuple[Path, str]) -> None:
    (code,) = python_blocks("README.md")
    assert '"mine/run"' in code
    assert run_code(code.replace("mine/run", "runs/mine") + "print(x.shape)", cwd=readers_folder[0]).endswith(
        "(None, None, 512)\n"
    )


@pytest.mark.integration
def test_code_about_attention_draws_that_run(readers_folder: tuple[Path, str]) -> None:
    (code,) = python_blocks("attention.md")
    assert run_code(code, cwd=readers_folder[0]) == ""
    assert (readers_folder[0] / "cross.png").stat().st_size > 5000
    assert ">key</text>" in (readers_folder[0] / "second_word.svg").read_text(encoding="utf-8")


@pytest.mark.integration
def test_code_about_results_runs_on_that_run(readers_folder: tuple[Path, str]) -> None:
    (code,) = python_blocks("results.md")
    for documents, here in (("data/multi30k", "data/mine"), ("runs/multi30k", "runs/mine"), ('"test"', '"valid"')):
        assert documents in code
        code = code.replace(documents, here)
    lines = run_code(code, cwd=readers_folder[0]).splitlines()
    assert len(lines) == 2
    for line in lines:
        score, speed = map(float, line.split())
        assert 0 <= score <= 100 and speed > 0
