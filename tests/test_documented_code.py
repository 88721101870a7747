"""What the documents say of commands and code: commands are there, links lead somewhere, and code runs."""

import json
import re
import shlex
from pathlib import Path

import pytest

from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.sources import packages
from t2t_keras.data.sources.corpora import NAMES
from tests.test_packaging import commands, run_code

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
