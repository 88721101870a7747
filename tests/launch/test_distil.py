import gzip
import os
import pathlib
import signal

import pytest

from tests import programs
from tests.inference import tiny
from tests.programs import assert_error

pytestmark = pytest.mark.integration

SOURCES = ["A man\r", "", "Two dogs play", "A ladder. Snow barks!", "one of them", "The quick fox", "dog"]
TARGETS = ["Ein Mann", "Leer", "Zwei Hunde spielen", "", "einer von ihnen", "Der Fuchs", "Hund"]
SEARCH = ["--max_length_offset=3", "--beam_size=4"]
EXTENSION = f"--extension={pathlib.Path(__file__).with_name('distil_extension.py')}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("distil")
    tiny.make_run(folder / "run")
    tiny.make_run(folder / "other", tiny.transformer(num_decoder_layers=1))
    tiny.make_run(folder / "labels", task="classification")
    with gzip.open(folder / "a.en.gz", "wb") as file:
        file.write("".join(f"{line}\n" for line in SOURCES).encode())
    (folder / "a.de").write_text("".join(f"{line}\n" for line in TARGETS), encoding="utf-8")
    (folder / "short.de").write_text("".join(f"{line}\n" for line in TARGETS[:-1]), encoding="utf-8")
    return folder


def distil(folder: pathlib.Path, name: str, *more: str, **environment: str) -> tuple[int, str, str]:
    """Runs the program, which writes NAME.en and NAME.de; returns its status, standard output and standard error."""
    flags = [f"--{flag}={folder / file}" for flag, file in (("source", "a.en.gz"), ("target", "a.de"))]
    flags += [f"--output_{side}={folder / name}.{end}" for side, end in (("source", "en"), ("target", "de"))]
    arguments = ["--direction=forward", f"--model_dir={folder / 'run'}", *flags, *SEARCH, *more]
    completed = programs.run(
        ["-m", "launch.distil", *arguments], capture_output=True, text=True, env=os.environ | environment
    )
    return completed.returncode, completed.stdout, completed.stderr


def outputs(folder: pathlib.Path, name: str) -> tuple[list[str], list[str]]:
    texts = [(folder / f"{name}.{end}").read_bytes().decode() for end in ("en", "de")]
    assert not list(folder.glob(f"{name}.*.part")) and all(text.endswith("\n") for text in texts)
    sources, targets = (text.removesuffix("\n").split("\n") for text in texts)
    return sources, targets


def translate(folder: pathlib.Path, lines: list[str], *more: str) -> list[str]:
    command = ["-m", "launch.translate", f"--model_dir={folder / 'run'}", *SEARCH, *more]
    text = "".join(f"{line}\n" for line in lines)
    completed = programs.run(command, input=text, capture_output=True, text=True, check=True)
    return completed.stdout.removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def forward(folder) -> tuple[list[str], list[str]]:
    """The outputs of an uninterrupted call with short chunks."""
    status, _, errors = distil(folder, "forward", EXTENSION)
    assert status == 0 and "cut at the limit of 1 x source + 3 tokens" in errors
    return outputs(folder, "forward")


def test_best_translations_equal_those_of_translate(folder, forward):
    assert forward == ([line.removesuffix("\r") for line in SOURCES], translate(folder, SOURCES))


def test_back_translation(folder):
    ensemble = f"--ensemble={folder / 'other'}"
    assert distil(folder, "back", "--direction=back", ensemble)[0] == 0
    assert outputs(folder, "back") == (translate(folder, TARGETS, ensemble), TARGETS)


@pytest.mark.parametrize(("direction", "reference"), [("forward", "target"), ("back", "source")])
def test_nearest_hypotheses_are_chosen(folder, direction, reference):
    """Each line of the replaced side equals the third hypothesis."""
    lines = {"forward": ["A man", "Two dogs play"], "back": ["Ein Mann", "Zwei Hunde spielen"]}[direction]
    rows = [row.split(" ||| ") for row in translate(folder, lines, "--num_best=4")]
    third = [rows[2][1], rows[6][1]]
    assert all(third[number] not in [row[1] for row in rows[4 * number :][:2]] for number in range(2))
    texts = {"source": lines, "target": lines, reference: third}
    for side, text in texts.items():
        (folder / f"{direction}.{side}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    flags = [f"--{side}={folder / direction}.{side}" for side in texts]
    flags += [f"--direction={direction}", "--choose=nearest"]
    assert distil(folder, f"{direction}_of_all", *flags)[0] == 0
    assert outputs(folder, f"{direction}_of_all") == tuple(texts.values())
    if direction == "forward":
        assert distil(folder, "forward_of_two", *flags, "--num_best=2")[0] == 0
        assert outputs(folder, "forward_of_two")[1] != third


def test_killed_calls_resume(folder, forward):
    """Killed before a chunk is recorded, when the outputs contain its lines, and between the renames of the outputs."""
    calls = [distil(folder, "killed", EXTENSION, RECORDS=str(records)) for records in (2, 1)]
    assert not (folder / "killed.de").exists() and (folder / "killed.de.part").exists()
    calls.append(distil(folder, "killed", EXTENSION, RENAMED="1"))
    assert [status for status, *_ in calls] == [-signal.SIGKILL] * 3
    assert calls[1][1].endswith("resuming after 2 of 7 pairs\n") and "after 4 of 7 pairs\n" in calls[2][1]
    status, output, errors = distil(folder, "killed", EXTENSION)
    assert status == 0 and "already distilled" in output and "cut at the limit" in errors
    assert outputs(folder, "killed") == forward


CHANGES = {
    "choose": (["--choose=nearest"], "choose: 'best' -> 'nearest', num_best: 1 -> 4"),
    "direction": (["--direction=back"], "direction: 'forward' -> 'back'"),
    "search": (["--length_penalty=1"], "length_penalty: 0.6 -> 1.0"),
    "phrases": (["--exclude=dogs"], "exclude: [] -> ['dogs']"),
    "teacher": (["--model_dir=FOLDER/other"], "teacher_1: "),
    "ensemble": (["--ensemble=FOLDER/other"], "teacher_2: None -> "),
    "text": (["--target=FOLDER/short.de"], "target: "),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_flags_texts_and_teachers_are_rejected(folder, forward, case):
    more, difference = CHANGES[case]
    result = distil(folder, "forward", *(flag.replace("FOLDER", str(folder)) for flag in more))
    assert_error(result, difference, beginning=f"{folder / 'forward.de'} was started with different settings (")
    assert outputs(folder, "forward") == forward


def test_errors(folder, forward):
    cases = {
        "classification": [f"--model_dir={folder / 'labels'}"],
        "--num_best requires --choose=nearest": ["--num_best=2"],
        "--num_best=5 is more than --beam_size=4": ["--choose=nearest", "--num_best=5"],
        f"--output_target={folder / 'a.de'} is also the input": [f"--output_target={folder / 'a.de'}"],
        "are the same file": [f"--output_target={folder / 'new.en'}"],
        "give a name without .gz": [f"--output_target={folder / 'new.de.gz'}"],
        "unequal numbers of lines": [f"--target={folder / 'short.de'}"],
    }
    for words, more in cases.items():
        assert_error(distil(folder, "new", *more), words)
    (folder / "forward.de").rename(folder / "away.de")
    assert_error(distil(folder, "forward"), f"{folder / 'forward.de'} is not the output of")
    (folder / "away.de").rename(folder / "forward.de")
    assert_error(distil(folder, "forward", f"--output_source={folder / 'new.en'}"), f"{folder / 'new.en'} is not")
