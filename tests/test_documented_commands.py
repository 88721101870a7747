"""The commands, links and names in the documents exist."""

import collections
import re
from pathlib import Path

from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.sources import packages
from t2t_keras.data.sources.corpora import NAMES
from tests.documented.pages import BLOCK, COMMANDS, PAGES
from tests.test_packaging import commands

ROOT = Path(__file__).parents[1]


def test_every_program_is_documented() -> None:
    """`launch/cluster/test_commands.py` checks the flags."""
    assert {command.program for command in COMMANDS} - {""} == set(commands().values())


def test_documented_benchmarks_accept_their_flags() -> None:
    benchmark_commands = [command for command in COMMANDS if command.module.startswith("benchmarks.")]
    assert benchmark_commands
    for command in benchmark_commands:
        source = (ROOT / f"{command.module.replace('.', '/')}.py").read_text(encoding="utf-8")
        for flag in command.words[3:]:
            assert f'"{flag.split("=")[0]}"' in source, command


BESIDE_A_MODEL = (ROOT / "t2t_keras" / "formats" / "graphs" / "standalone.py").read_text(encoding="utf-8")


def test_every_other_documented_command_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for command in COMMANDS:
        words = command.words
        if words[0] == "make":
            assert words[1] in targets, command
        elif words[0] == "python":
            is_module = words[1] == "-m" and words[2].split(".")[0] in ("launch", "benchmarks", "venv")
            is_beside_a_model = Path(words[1]).name == "translate.py"  # a copy of formats/graphs/standalone.py
            if is_beside_a_model:
                assert all(f'"{word.split("=")[0]}"' in BESIDE_A_MODEL for word in words[2:] if word[:2] == "--"), words
            assert is_module or is_beside_a_model or (ROOT / words[1]).is_file(), command
        elif words[0].startswith("t2t-"):
            assert words[0] in commands(), command
        else:
            others = (
                "cd",
                "curl",
                "diff",
                "git",
                "openssl",
                "pip",
                "sacrebleu",
                "sbatch",
                "sed",
                "source",
                "tensorboard",
            )
            assert words[0] in others, command
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        of_tensor2tensor = {"t2t-bleu", "t2t-exporter"} if path.name == "coming_from.md" else set()
        assert set(re.findall(r"`(t2t-[a-z]+)`", text)) - of_tensor2tensor <= set(commands()), path.name
        assert {f"launch.{name}" for name in commands().values()} >= set(re.findall(r"\blaunch\.\w+", text)) - {
            "launch.NAME"
        }, path.name


def test_links_of_the_documents_exist() -> None:
    for document in PAGES:
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
    for table, pins in zip(tables, (packages.GETTEXT, packages.GETTEXT_PERMISSIVE, packages.DOCSTRINGS), strict=True):
        rows = re.findall(r"^\| ([A-Z][\w.-]+) \| (.+) \|$", table, re.MULTILINE)
        named = [re.sub(r" \(.*\)", "", name) for _, names in rows for name in names.split(", ")]
        assert sorted(named) == sorted(pin.name for pin in pins)


def test_every_python_block_is_run_by_a_test() -> None:
    blocks = [(path.name, language) for path in PAGES for language, _ in BLOCK.findall(path.read_text("utf-8"))]
    assert collections.Counter(name for name, language in blocks if language == "python") == {
        # Blocks that test_from_python.py runs, and others.
        **{"attention.md": 1, "python.md": 7, "results.md": 1, "translator.md": 5, "README.md": 1},
        "change_the_model.md": 3,  # test_change_the_model.py
        "cookbook.md": 3,  # test_cookbook.py
        "convert.md": 3,
        "markup.md": 1,  # inference/test_marked_text.py
        "protected_text.md": 1,  # inference/test_protected_lines.py
        "files.md": 1,  # localization/test_files_page.py
        "scaling_preparation.md": 1,  # data/test_dask.py
    }
