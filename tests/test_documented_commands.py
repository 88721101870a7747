"""What the documents say of commands and code: commands are there, and links lead somewhere."""

import collections
import json
import re
import shlex
from pathlib import Path

import pytest

from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.sources import packages
from t2t_keras.data.sources.corpora import NAMES
from tests import programs
from tests.test_packaging import commands

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for folder in (ROOT, ROOT / ".github", ROOT / "docs") for path in sorted(folder.glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


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
    assert {program for _, program, _ in found} == set(commands().values())
    done = programs.run(["-c", code], cwd=ROOT, input=json.dumps(found), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


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
            others = ("cd", "curl", "diff", "git", "pip", "sacrebleu", "sbatch", "sed", "source", "tensorboard")
            assert words[0] in others, (document, words)
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        of_tensor2tensor = {"t2t-bleu", "t2t-exporter"} if path.name == "coming_from.md" else set()
        assert set(re.findall(r"`(t2t-[a-z]+)`", text)) - of_tensor2tensor <= set(commands()), path.name
        assert {f"launch.{name}" for name in commands().values()} >= set(re.findall(r"\blaunch\.\w+", text)) - {
            "launch.NAME"
        }, path.name


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


def test_every_block_of_python_is_run_by_a_test() -> None:
    assert collections.Counter(name for name, _ in documented("python")) == {
        # Those of test_from_python.py, and others.
        **{"attention.md": 1, "python.md": 5, "results.md": 1, "translator.md": 3, "README.md": 1},
        "change_the_model.md": 2,  # test_change_the_model.py
        "convert.md": 2,
        "markup.md": 1,  # inference/test_marked_text.py
        "scaling_preparation.md": 1,  # data/test_dask.py
    }
