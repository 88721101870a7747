"""Tests of launch.translate: pipes, files, unusual input and terminals."""

import gzip
import importlib.util
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from tests import programs
from tests.inference import tiny
from tests.programs import assert_error, run_cases

pytestmark = pytest.mark.integration

needs_ctranslate2 = pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="needs ctranslate2")

ODD_LINES = b"A man\r\n\n\t\nTwo\tdogs\rplay\n\xe2\x80\x8b\n" + b"a" * 600 + b"\nA man"
SHORT = ["--max_length_offset=3"]
PARAGRAPH = "A man.  Two dogs play! A\nman"
CATALOGUE = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "A man in a <b>blue</b> shirt."
msgstr ""

msgid "dog"
msgstr "Hund"
"""
JSON_LINES = "\n".join(
    [
        '{"text": "A man", "id": 7}',
        '{"text": "A man", "prefix": "Ein", "constraints": ["Hund"], "excluded": ["Mann", "!"], "id": ["x"]}',
        "{'text': 'A man'}",
        '{"text": "A man", "prefx": "Ein", "id": "y"}',
        '{"prefix": "Ein"}',
        '{"text": "A man", "constraints": "Ein"}',
        '{"text": 3}',
        "[1]",
        '{"text": "", "prefix": "Ein"}',
        "[" * 100_000,
        '{"text": ""}',
        '{"text": "A man", "constraints": ["Ein", []]}',
    ]
).encode()
ODD_JSON_LINES = b"\xef\xbb\xbf" + JSON_LINES.replace(b"7", b'"\\ud800"', 1)
SETTINGS = [
    "--beam_size=4",
    "--num_groups=2",
    "--diversity_strength=0.5",
    "--coverage_penalty=0.2",
    "--no_repeat_ngram_size=2",
    "--length_normalization=average",
    "--exclude=dogs",
    "--exclude=Leiter",
]


def truncation_warning(number: int) -> str:
    """The warning about outputs that end at the limit, which all outputs of an untrained model do."""
    advice = "to raise it, give --max_length_factor and --max_length_offset"
    outputs = "1 output was" if number == 1 else f"{number} outputs were"
    return f"warning: {outputs} cut at the limit of 1 x source + 3 tokens; {advice}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    tiny.make_run(folder / "run")
    with gzip.open(folder / "in.gz", "wb") as file:
        file.write(ODD_LINES)
    (folder / "terms.tsv").write_text(f"man\tMann|Hemd\ndog\t{'Leiter ' * 9}\n")
    (folder / "bad.tsv").write_text("man\tMann\ndog Hund\n")
    for name in ("in.po", "in_place.po"):
        (folder / name).write_text(CATALOGUE)
    (folder / "bad.po").write_text(CATALOGUE.replace('"dog"', '"dog'))
    (folder / "in.csv").write_text("english,german\nA man,\n")
    (folder / "in.html").write_text("<p>A man</p>\n")
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run, ctranslate2 = [f"--model_dir={folder / 'run'}", *SHORT], ["--engine=ctranslate2"]
    cases = {
        "pipe": (run, ODD_LINES),
        "files": ([*run, f"--input={folder / 'in.gz'}", f"--output={folder / 'out.txt'}", "--chunk_lines=2"], b""),
        "over_itself": ([*run, *(f"--{name}={folder / 'in.gz'}" for name in ("input", "output"))], b""),
        "ensemble": ([*run, f"--ensemble={folder / 'run'}", f"--ensemble={folder / 'run'}@1"], ODD_LINES),
        "geometric": ([*run, f"--ensemble={folder / 'run'}", "--ensemble_mean=log_probabilities"], ODD_LINES),
        "alike": ([*run, "--beam_size=1", "--num_best=1", "--token_scores", "--json"], ODD_LINES),
        "ctranslate2": ([*run, *ctranslate2, "--beam_size=1", "--token_scores", "--json"], ODD_LINES),
        "int8": ([*run, *ctranslate2, "--compute_type=int8", "--beam_size=1"], ODD_LINES),
        "ctranslate2_skip": ([*run, *ctranslate2, "--json", "--json_input", "--on_error=skip"], JSON_LINES),
        "ctranslate2_ensemble": ([*run, *ctranslate2, f"--ensemble={folder / 'run'}"], b""),
        "ctranslate2_bfloat16": ([*run, *ctranslate2, "--bfloat16"], b""),
        "ctranslate2_exclude": ([*run, *ctranslate2, "--exclude=dogs"], b""),
        "ctranslate2_glossary": ([*run, *ctranslate2, f"--glossary={folder / 'terms.tsv'}"], b""),
        "bad_pattern": ([*run, "--protect=urls", "--protect=("], b""),
        "bad_kind": ([*run, "--protect=urls,mails"], b""),
        "bad_glossary": ([*run, f"--glossary={folder / 'bad.tsv'}"], b""),
        "no_glossary": ([*run, f"--glossary={folder / 'missing.tsv'}"], b""),
        "glossary": ([*run, f"--glossary={folder / 'terms.tsv'}", "--json"], b"A man\ndogs\n\nThe dog\n"),
        "html": ([*run, "--markup=html"], b"<p>A <b>man</b>\n{x}</p>\n<br>\n"),
        "attributes_without_tags": ([*run, "--markup=placeholders", "--markup_attributes=alt"], b""),
        "bad_xml": ([*run, "--markup=xml"], b"<p>\n<b></p>\n"),
        "json_markup": ([*run, "--markup=placeholders", "--json"], b""),
        "catalogue": ([*run, f"--input={folder / 'in.po'}", f"--output={folder / 'out.po'}"], b""),
        "catalogue_in_place": ([*run, f"--input={folder / 'in_place.po'}", "--in_place", "--all"], b""),
        "catalogue_over_itself": ([*run, *(f"--{name}={folder / 'in.po'}" for name in ("input", "output"))], b""),
        "catalogue_of_pipe": ([*run, "--input_format=po"], CATALOGUE.encode()),
        "catalogue_as_lines": ([*run, f"--input={folder / 'in.po'}", "--input_format=text"], b""),
        "bad_catalogue": ([*run, f"--input={folder / 'bad.po'}"], b""),
        "json_catalogue": ([*run, f"--input={folder / 'in.po'}", "--json"], b""),
        "catalogue_to_table": ([*run, f"--input={folder / 'in.po'}", "--output=out.csv"], b""),
        "piped_catalogue_to_table": ([*run, "--input_format=po", "--output=out.csv"], CATALOGUE.encode()),
        "lines_by_column": ([*run, "--column=english"], b""),
        "all_lines": ([*run, "--all"], b""),
        "lines_in_place": ([*run, f"--input={folder / 'in.gz'}", "--in_place"], b""),
        "no_column": ([*run, f"--input={folder / 'in.csv'}"], b""),
        "page_without_markup": ([*run, f"--input={folder / 'in.html'}"], b""),
        "two_tags": ([*run, "--target_language=fr", "--tag=<2de>"], b""),
        "no_compute_type": ([*run, "--compute_type=int8"], b""),
        "paragraph": ([*run, "--json", "--json_input"], json.dumps({"text": PARAGRAPH}).encode()),
        "paragraph_as_line": (
            [*run, "--json_input"],
            json.dumps({"text": PARAGRAPH}).encode() + b'\n{"text": "A man."}\n',
        ),
        "whole_paragraph": ([*run, "--json", "--split=lines"], PARAGRAPH.replace("\n", " ").encode()),
        "sentences": ([*run, "--json"], b"A man.\nTwo dogs play!\nA\nman"),
        "invalid": ([*run, f"--output={folder / 'never.txt'}"], b"A man\nA d\xffg\nA man\n"),
        "no_run": (["--model_dir=/nowhere"], b"A man\n"),
        "no_checkpoint": ([*run, "--checkpoint=77"], b"A man\n"),
        "no_ensemble": ([*run, "--ensemble_mean=log_probabilities"], b""),
        "no_extension": ([*run, "--extension="], b""),
        "half_an_extension": ([*run, "--extension=.foo"], b""),
        "no_member": ([*run, "--ensemble=/nowhere@best"], b"A man\n"),
        "bad_member": ([*run, "--ensemble=@best"], b"A man\n"),
        "no_input": ([*run, "--input=/nowhere/in.txt"], b""),
        "no_output": ([*run, "--output=/nowhere/out.txt"], b""),
        "large_beam": ([*run, "--beam_size=351"], b""),
        "too_many": ([*run, "--num_best=3"], b""),
        "not_json": ([*run, "--json_input"], JSON_LINES),
        "blank_exclude": ([*run, "--exclude= "], b""),
        "plain_alignments": ([*run, "--alignments"], b""),
        "unmet": ([*run, "--json_input"], b'{"text": "A man", "prefix": " "}'),
        "settings": ([*run, *SETTINGS], b"A man\n"),
        "sampling": ([*run, "--sampling", "--temperature=2", "--top_k=9", "--top_p=0.9", "--seed=3"], b"A man\n"),
        "nbest": ([*run, "--num_best=2", "--on_error=skip"], ODD_LINES + b"\nA d\xffg\n"),
        "json": ([*run, "--json", "--token_scores", "--alignments", "--num_best=2"], ODD_LINES),
        "json_both": ([*run, "--json", "--json_input", "--on_error=skip"], ODD_JSON_LINES),
        "skip": ([*run, "--json_input", "--on_error=skip", "--chunk_lines=3"], JSON_LINES),
        "skip_bytes": ([*run, "--on_error=skip"], b"A man\nA d\xffg\nA man\n"),
    }
    return dict(zip(cases, run_cases("launch.translate", list(cases.values())), strict=True))


def test_pipes_return_one_line_per_line(results):
    status, out, err = results["pipe"]
    assert status == 0
    lines = out.removesuffix("\n").split("\n")
    assert len(lines) == 7
    assert [bool(line) for line in lines] == [True, False, False, True, False, True, True]
    assert lines[0] == lines[6]
    assert err == f"warning: 1 line was too long and was translated in parts\n{truncation_warning(4)}"


def test_files_and_chunks_give_the_same_output(results, folder):
    assert results["files"][:2] == (0, "")
    assert (folder / "out.txt").read_text(encoding="utf-8") == results["pipe"][1]


@pytest.mark.parametrize("name", ["ensemble", "geometric"])
def test_an_ensemble_of_one_run_equals_the_run(results, name):
    assert results[name] == results["pipe"]


def test_libraries_do_not_write_to_standard_error(folder):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "launch.translate", f"--model_dir={folder / 'run'}", *SHORT]
    result = subprocess.run(command, input=b"A man\n", capture_output=True, env=environment)
    assert (result.returncode, result.stderr.decode()) == (0, truncation_warning(1))


@needs_ctranslate2
def test_engines_agree(results):
    status, out, _ = results["ctranslate2"]
    assert status == 0
    actual, expected = ([json.loads(line) for line in text.splitlines()] for text in (out, results["alike"][1]))
    assert [answer["pieces"] for answer in actual] == [answer["pieces"] for answer in expected]
    for answer in actual:
        assert sum(answer["token_log_probs"]) == pytest.approx(answer["log_prob"], rel=2e-2, abs=1e-4)
    status, out, _ = results["int8"]
    assert (status, out.count("\n")) == (0, 7)


@needs_ctranslate2
def test_unsupported_options_fail_only_their_line(results):
    status, out, _ = results["ctranslate2_skip"]
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and answers[0]["id"] == 7 and answers[0]["translation"]
    assert answers[1] == {
        "id": ["x"],
        "error": "this engine does not support constraints; use --engine=tensorflow",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("invalid", ["standard input, line 2", "UTF-8"]),
        ("no_run", ["--model_dir=/nowhere: no such folder"]),
        ("no_checkpoint", ["77"]),
        ("no_ensemble", ["--ensemble_mean requires --ensemble"]),
        ("no_extension", ["--extension=: give a Python file, or the full name of a module"]),
        ("half_an_extension", ["--extension=.foo: give a Python file, or the full name of a module"]),
        ("no_member", ["/nowhere"]),
        ("bad_member", ["'@best'", "MODEL_DIR@CHECKPOINT"]),
        ("no_input", ["--input=/nowhere/in.txt: no such file"]),
        ("no_output", ["--output=/nowhere/out.txt: no such folder: /nowhere"]),
        ("over_itself", ["--output=", "in.gz", "is also the input"]),
        ("large_beam", ["beam_size", "351", "350"]),
        ("too_many", ["--num_best=3", "--beam_size=2"]),
        ("not_json", ["standard input, line 3", "not valid JSON"]),
        ("blank_exclude", ["excluded", "blank"]),
        ("plain_alignments", ["--alignments", "--json"]),
        ("ctranslate2_ensemble", ["--engine=ctranslate2", "--ensemble", "--engine=tensorflow"]),
        ("ctranslate2_bfloat16", ["ctranslate2", "decode.bfloat16=True", "--engine=tensorflow"]),
        ("ctranslate2_exclude", ["ctranslate2", "excluded words", "--engine=tensorflow"]),
        ("ctranslate2_glossary", ["glossaries", "--engine=tensorflow"]),
        ("bad_pattern", ["--protect=(:", "not a valid regular expression"]),
        ("bad_kind", ["--protect=urls,mails", "unknown kind 'mails'"]),
        ("bad_glossary", ["bad.tsv, line 2", "'dog Hund'"]),
        ("no_glossary", ["--glossary=", "missing.tsv: no such file"]),
        ("bad_xml", ["standard input, line 2", "not well-formed XML"]),
        ("json_markup", ["--markup", "--json"]),
        ("attributes_without_tags", ["--markup_attributes", "--markup=html"]),
        ("catalogue_over_itself", ["--output", "is also the input"]),
        ("bad_catalogue", ["bad.po, line 7", "not a line of a .po file"]),
        ("json_catalogue", [".po", "--json"]),
        ("catalogue_to_table", ["--output=out.csv", ".po"]),
        ("piped_catalogue_to_table", ["--output=out.csv", ".po"]),
        ("lines_by_column", ["--column requires a .csv or .tsv file"]),
        ("all_lines", ["--all requires an input with units"]),
        ("lines_in_place", ["--in_place"]),
        ("no_column", ["in.csv, line 1: --column=source", "'english', 'german'"]),
        ("page_without_markup", ["in.html", "--markup=html", ".po", ".md"]),
        ("two_tags", ["--target_language cannot be combined with --tag"]),
        ("no_compute_type", ["--compute_type=int8", "--engine=ctranslate2"]),
        ("unmet", ["standard input, line 1", "prefix", "blank"]),
    ],
)
def test_errors(results, name, words, folder):
    assert_error(results[name], *words)
    assert not (folder / "never.txt").exists()


def test_catalogue_units_are_translated(folder, results):
    status, out, err = results["catalogue"]
    assert (status, out) == (0, "")
    assert "in.po: translated 1 of 2 units; 1 had a translation or no text to translate\n" in err
    catalogue = (folder / "out.po").read_text()
    translation = re.search(r'#, fuzzy\n.*\nmsgstr "(.+)"', catalogue)
    assert translation and re.search("<b>.*</b>", translation[1])
    assert catalogue.replace(translation[1], "").replace("#, fuzzy\n", "") == CATALOGUE
    assert (folder / "in.po").read_text() == CATALOGUE
    assert results["catalogue_of_pipe"][1] == catalogue
    assert (folder / "in_place.po").read_text().count("#, fuzzy") == 2
    assert results["catalogue_in_place"][1] == ""
    assert results["catalogue_as_lines"][1].count("\n") == CATALOGUE.count("\n")


def test_markup_is_preserved(results):
    status, out, _ = results["html"]
    assert status == 0 and out.startswith("<p>") and out.endswith("</p>\n<br>\n")
    assert all(out.count(once) == 1 for once in ("<b>", "</b>", "{x}"))


def test_glossary_terms_are_used_and_counted(results):
    status, out, err = results["glossary"]
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and "terms" not in answers[1] and "terms" not in answers[2]
    (term,) = answers[0]["terms"]
    assert term["source"] == "man" and term["form"] in answers[0]["translation"] and term["forced"]
    assert answers[3]["terms"] == [{"source": "dog", "form": None, "forced": False}]
    warning, *_, counts = err.splitlines()
    assert warning.startswith("warning: standard input, line 4: no form of the term 'dog' fits within the limit")
    assert counts == "glossary: 2 terms in the source, 0 met by the model, 1 forced, 1 missing"


@pytest.mark.parametrize("name", ["settings", "sampling"])
def test_settings_of_the_search_are_flags(results, name):
    status, out, err = results[name]
    assert (status, out.count("\n"), err.replace(truncation_warning(1), "")) == (0, 1, "")
    assert out != results["pipe"][1].splitlines(keepends=True)[0]


def test_paragraphs_are_translated_by_sentence(results):
    (paragraph,), (whole,), sentences = (
        [json.loads(line) for line in results[name][1].splitlines()]
        for name in ("paragraph", "whole_paragraph", "sentences")
    )
    texts = [answer["translation"] for answer in sentences]
    assert paragraph["translation"] == "{}  {} {}\n{}".format(*texts)
    assert [each["source"] for each in paragraph["sentences"]] == ["A man.", "Two dogs play!", "A", "man"]
    assert [each["translation"] for each in paragraph["sentences"]] == texts
    assert paragraph["score"] == pytest.approx(sum(answer["score"] for answer in sentences), abs=1e-5)
    assert "sentences" not in whole and "sentences" not in sentences[0]
    lines = results["paragraph_as_line"][1].splitlines()
    assert lines == [paragraph["translation"].replace("\n", " "), texts[0]]


def test_nbest_lists(results):
    status, out, err = results["nbest"]
    rows = [line.split(" ||| ") for line in out.removesuffix("\n").split("\n")]
    assert status == 0 and [row[0] for row in rows] == list("00123345566")
    best = {int(number): text for number, text, _ in reversed(rows)}
    assert [best[number] for number in range(7)] == results["pipe"][1].removesuffix("\n").split("\n")
    assert float(rows[0][2]) >= float(rows[1][2])
    assert "line 8: not valid UTF-8" in err  # and it is not in the output


def test_json_contains_the_requested_fields(results):
    status, out, _ = results["json"]
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [answer["translation"] for answer in answers] == results["pipe"][1].removesuffix("\n").split("\n")
    for answer in answers:
        for hypothesis in answer["nbest"]:
            assert len(hypothesis["pieces"]) == len(hypothesis["token_log_probs"]) == hypothesis["num_tokens"]
            assert sum(hypothesis["token_log_probs"]) == pytest.approx(hypothesis["log_prob"], rel=1e-6, abs=1e-4)
            words = [len(text.split()) for text in (" ".join(hypothesis["source_pieces"]), hypothesis["translation"])]
            for link in hypothesis["alignment"].split():
                source, target = map(int, link.split("-"))
                assert source < max(words[0], 1) and target < max(words[1], 1)
    nothing = {
        "translation": "",
        "score": 0,
        "log_prob": 0,
        "num_tokens": 0,
        "pieces": [],
        "token_log_probs": [],
        "source_pieces": [],
        "alignment": "",
    }
    assert answers[1] == {**nothing, "nbest": [nothing]}


def test_invalid_json_lines_return_an_error(results):
    status, out, err = results["json_both"]
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and len(answers) == 12
    assert [answer.get("id") for answer in answers] == ["\ud800", ["x"], None, "y", *[None] * 8]
    assert [n for n, answer in enumerate(answers) if "translation" in answer] == [0, 1, 10]
    assert answers[1]["translation"].startswith("Ein") and "Hund" in answers[1]["translation"]
    assert answers[11]["error"] == "constraints: () is blank"
    words = {2: "JSON", 3: "'prefx'", 4: "'text'", 5: "'constraints'", 6: "'text'", 7: "object", 8: "prefix", 9: "JSON"}
    assert all(word in answers[number]["error"] for number, word in words.items())


def test_invalid_lines_stay_empty(results):
    status, out, err = results["skip"]
    lines = out.removesuffix("\n").split("\n")
    assert status == 0 and [bool(line) for line in lines] == [True, True, *[False] * 10]
    *errors, last = err.splitlines()
    assert [line.split(":")[1] for line in errors] == [f" standard input, line {n}" for n in [*range(3, 11), 12]]
    assert "cut at the limit" in last
    status, out, err = results["skip_bytes"]
    assert (status, out.split("\n")[1]) == (0, "") and "line 2: not valid UTF-8" in err


def type_lines(folder, *flags: str, show_output: bool = False) -> tuple[bytes, bytes]:
    """Types two lines into a terminal, which may also show the output; returns both outputs of the program."""
    terminal, keyboard = pty.openpty()
    program = programs.Program(
        ["-m", "launch.translate", f"--model_dir={folder / 'run'}", *SHORT, *flags],
        stdin=keyboard,
        stdout=keyboard if show_output else subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(terminal, b"A man\nTwo dogs play\n\x04")
    out, err = program.communicate(timeout=300)
    if show_output:
        out = os.read(terminal, 1 << 16)
    os.close(keyboard)
    os.close(terminal)
    assert program.returncode == 0
    return out, err


def test_typed_lines_are_written_to_the_output(folder):
    out, _ = type_lines(folder, f"--output={folder / 'typed.txt'}")
    translations = (folder / "typed.txt").read_bytes()
    assert out == b"" and translations.count(b"\n") == 2
    assert type_lines(folder)[0] == translations, "the output contains no prompt"


def test_terminals_show_a_prompt(folder):
    out, err = type_lines(folder, show_output=True)
    assert b"Ctrl-D" in err
    assert (out + err).count(b"> ") == 3
