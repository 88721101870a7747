"""Tables, links and messages in the documents agree with the code."""

import ast
import dataclasses
import os
import re
import shlex
import tomllib
import typing
from pathlib import Path

import pytest

from t2t_keras import layers
from t2t_keras.config import SECTIONS, Config
from t2t_keras.models.presets import preset
from t2t_keras.studies.study import Study
from t2t_keras.studies.study_settings import read_settings
from t2t_keras.values import parsed
from tests import programs
from tests.test_packaging import commands

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\{?[\w-]*\}?)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def table(document: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without the header row."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    first = re.search(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    rows = re.findall(r"^\| (.+) \|$", first[0], re.MULTILINE) if first else []
    return [row.split(" | ") for row in rows[1:]]


@pytest.mark.parametrize(
    ("section", "document", "heading"),
    [
        ("model", "settings.md", "`model`"),
        ("data", "settings.md", "`data`"),
        ("train", "settings.md", "`train`"),
        ("decode", "decoding.md", "Settings"),
    ],
)
def test_tables_of_settings_agree_with_the_dataclasses(section: str, document: str, heading: str) -> None:
    defaults = getattr(Config(), section)
    hints = typing.get_type_hints(type(defaults))
    documented = {}
    for names, values, description in table(document, heading):
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=True):
            assert name in hints, f"{document}: {section}.{name}"
            documented[name] = parsed(name, hints[name], value)
            for choice in typing.get_args(hints[name]) if typing.get_origin(hints[name]) is typing.Literal else ():
                assert re.search(rf'[`"]{choice}[`"]', description), f"{document}: {section}.{name}={choice}"
    assert documented == dataclasses.asdict(defaults)


def test_table_of_presets() -> None:
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8").partition("## Differences between presets")[2]
    names = re.findall(r"`(\w+)`", text.strip().splitlines()[0])
    assert names[0] == "base"
    documented = {}
    for setting, *values in table("settings.md", "Differences between presets"):
        section, _, field = setting.strip("`").partition(".")
        hint = typing.get_type_hints(type(getattr(Config(), section)))[field]
        documented[section, field] = [parsed(field, hint, value) for value in values]
    changed = {
        (section, field): [getattr(getattr(preset(name), section), field) for name in names]
        for section in SECTIONS
        for field in dataclasses.asdict(getattr(Config(), section))
    }
    assert documented == {key: values for key, values in changed.items() if any(v != values[0] for v in values)}


def test_table_of_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    documented = [extra.strip("`") for extra, _ in table("getting_started.md", "Extras")]
    assert documented == list(project["optional-dependencies"])


def test_table_of_layers() -> None:
    rows = table("python.md", "Layers in your own models")
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted([*names, "LayerSettings"]) == sorted(layers.__all__)


def test_table_of_programs() -> None:
    """The table contains the first paragraph of each docstring."""
    purposes = {}
    for name in commands().values():
        docstring = ast.get_docstring(ast.parse((ROOT / f"launch/{name}.py").read_text(encoding="utf-8"))) or ""
        purposes[f"`launch.{name}`"] = docstring.split("\n\n")[0].replace("\n", " ")
    page = (ROOT / "docs/programs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`launch\.\w+`) \| (.+) \|$", page, re.MULTILINE)
    assert {name: re.sub(r"`(--\w+)`", r"\1", purpose) for name, purpose in rows} == purposes


def test_index_links_every_page_of_its_chapters() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    chapters = "\n".join(re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL))
    pages = re.findall(r"^(?:.* <)?(/?[\w./]+)>?$", chapters, re.MULTILINE)
    paths = [ROOT / page[1:] if page[0] == "/" else ROOT / "docs" / page for page in pages]
    linked = re.findall(r"\]\(([^)#:]+)\.(?:md|ipynb)\)", index.partition("## All pages")[2])
    assert {(ROOT / "docs" / link).resolve() for link in linked} == set(paths) and len(paths) > 40


def test_every_document_is_linked() -> None:
    """Links start at the README."""
    reached: set[Path] = set()
    to_read = [ROOT / "README.md"]
    while to_read:
        document = to_read.pop()
        links = re.findall(r"\]\(([^)#:]+\.md)", document.read_text(encoding="utf-8"))
        new_links = {(document.parent / link).resolve() for link in links} - reached
        reached |= new_links
        to_read += new_links
    assert not [path.name for path in DOCS if path.resolve() not in reached]
    assert ROOT.resolve() / "docs/settings.md" in reached


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub generates for headings."""
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    headings = [heading.lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_links_to_headings_exist() -> None:
    links = 0
    for document in (ROOT / "README.md", *DOCS):
        for name, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text(encoding="utf-8")):
            links += 1
            assert anchor in anchors(document.parent / name if name else document), f"{document.name}: {name}#{anchor}"
    assert links > 20


def test_code_links_of_the_paper_page_exist() -> None:
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    for name, file in set(re.findall(r"\[`(\w+)`\]\(\.\./([\w/]+\.py)\)", page)):
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        assert name in {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}, name


def test_tests_named_in_the_documents_exist() -> None:
    code = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    tests = set(re.findall(r"^def (test_\w+)", "\n".join(code.values()), re.MULTILINE))
    pages = [path.read_text(encoding="utf-8") for path in DOCS]
    named = {name for page in pages for name in re.findall(r"(?:::|\[`)(test_\w+)", page)}
    assert len(named) > 50
    assert not named - tests
    assert not {name for page in pages for name in re.findall(r"\btest_\w+\.py", page)} - code.keys()


def test_getting_started_lists_the_steps_of_the_quickstart() -> None:
    source = (ROOT / "launch/quickstart.py").read_text(encoding="utf-8")
    section = (ROOT / "docs/getting_started.md").read_text(encoding="utf-8").partition("## The quickstart")[2]
    steps = re.findall(r"^(\d+)\. ", section.partition("\n## ")[0], re.MULTILINE)
    assert steps == re.findall(r'program\.title\(f?"(\d+)\. ', source)
    assert len(steps) == 5


def message_patterns() -> list[re.Pattern[str]]:
    """Patterns of the messages of the programs: strings with several words, in which values match anything."""
    texts = set()
    for folder in ("t2t_keras", "launch"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in node.values]
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = re.sub(r"%[sd]", "\0", node.value)
                    parts = [part or None for part in re.split("(\0)", text)]
                    parts = [None if part == "\0" else part for part in parts if part]
                else:
                    continue
                if sum(len(re.findall(r"\w", part)) for part in parts if part) >= 12:
                    texts.add("".join(".+" if part is None else re.escape(part) for part in parts))
    texts |= {re.escape(text) + ".+" for text in re.findall(r"sys\.exit\(\"(.+?)\"", (ROOT / "Makefile").read_text())}
    # A message may follow a prefix of the program, and a file or line.
    return [re.compile(rf"(error: |warning: )?([^ ]+(, line \d+)?: )?{text}", re.DOTALL) for text in sorted(texts)]


def symptoms() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_documented_symptoms_are_messages_of_the_code() -> None:
    patterns = message_patterns()
    assert len(symptoms()) >= 25
    assert not [symptom for symptom in symptoms() if not any(pattern.fullmatch(symptom) for pattern in patterns)]
    for unknown_message in ("error: the model is too large for this machine", "error: runs/mine is trained already"):
        assert not any(pattern.fullmatch(unknown_message) for pattern in patterns)


def test_documented_plans_equal_the_output_of_their_commands() -> None:
    """The page has the commands in the order of the outputs."""
    text = (ROOT / "docs/scaling_measured.md").read_text(encoding="utf-8")
    blocks = [(language, code.replace("\\\n", " ")) for language, code in BLOCK.findall(text)]
    lines = [line for language, code in blocks if not language for line in code.splitlines()]
    commands = [shlex.split(line)[3:] for line in lines if "--pairs=" in line]
    outputs = [code for language, code in blocks if language == "text"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert len(commands) == len(outputs) == 2
    for command, output in zip(commands, outputs, strict=True):
        program = ["-m", "launch.describe", *command]
        result = programs.run(program, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        assert output in result.stdout, command


def test_table_of_other_systems_agrees_with_its_records() -> None:
    folder = ROOT / "docs" / "tables" / "table2"
    study = Study(folder, read_settings(folder, {}))
    printed_rows = re.findall(r"^\| \w+ +\| (.+) \|$", study.table.markdown(study.states()), re.MULTILINE)
    rows = [[cell.strip() for cell in row.split(" | ")] for row in printed_rows]
    finished = [row[:9] for row in rows if row[1] and not row[-1]]
    assert len(finished) >= 13
    documented = (ROOT / "docs" / "table2_measured.md").read_text(encoding="utf-8")
    assert not [row for row in finished if f"| {' | '.join(row)} |" not in documented]
