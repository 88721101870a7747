"""The program: pipes, files, odd input, a terminal."""

import gzip
import os
import pathlib
import pty
import subprocess
import sys

import pytest

sys.path += [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "decoding")]

import tiny
from drive import run_cases

ODD_LINES = b"A man\r\n\n\t\nTwo\tdogs\rplay\n\xe2\x80\x8b\n" + b"a" * 600 + b"\nA man"
SHORT = ["--max_length_offset=3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    tiny.make_run(folder / "run")
    with gzip.open(folder / "in.gz", "wb") as file:
        file.write(ODD_LINES)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run = [f"--model_dir={folder / 'run'}", *SHORT]
    cases = {
        "pipe": (run, ODD_LINES),
        "files": ([*run, f"--input={folder / 'in.gz'}", f"--output={folder / 'out.txt'}"], b""),
        "chunks": ([*run, "--chunk_lines=2", "--beam_size=2"], ODD_LINES),
        "ensemble": ([*run, f"--ensemble={folder / 'run'}", f"--ensemble={folder / 'run'}@1"], ODD_LINES),
        "geometric": ([*run, f"--ensemble={folder / 'run'}", "--ensemble_mean=log_probabilities"], ODD_LINES),
        "empty": (run, b""),
        "invalid": ([*run, f"--output={folder / 'never.txt'}"], b"A man\nA d\xffg\nA man\n"),
        "no_run": (["--model_dir=/nowhere"], b"A man\n"),
        "no_checkpoint": ([*run, "--checkpoint=77"], b"A man\n"),
        "no_member": ([*run, "--ensemble=/nowhere@best"], b"A man\n"),
        "bad_member": ([*run, "--ensemble=@best"], b"A man\n"),
        "no_input": ([*run, "--input=/nowhere/in.txt"], b""),
        "no_output": ([*run, "--output=/nowhere/out.txt"], b""),
        "bad_beam": ([*run, "--beam_size=0"], b""),
        "bad_penalty": ([*run, "--length_penalty=-1"], b""),
    }
    return dict(zip(cases, run_cases("launch.translate", list(cases.values())), strict=True))


def test_pipe_gives_a_line_for_a_line(results):
    status, out, err = results["pipe"]
    assert status == 0
    lines = out.removesuffix("\n").split("\n")
    assert len(lines) == 7
    assert [bool(line) for line in lines] == [True, False, False, True, False, True, True]
    assert lines[0] == lines[6]
    assert err == "warning: 1 lines were too long for one piece and were translated in parts\n"


def test_files_equal_pipes(results, folder):
    assert results["files"][:2] == (0, "")
    assert (folder / "out.txt").read_text(encoding="utf-8") == results["pipe"][1]


def test_chunks_do_not_matter(results):
    assert results["chunks"][1] == results["pipe"][1]


@pytest.mark.parametrize("name", ["ensemble", "geometric"])
def test_a_run_with_itself_is_the_run(results, name):
    assert results[name] == results["pipe"]


def test_nothing_in_nothing_out(results):
    assert results["empty"] == (0, "", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("invalid", ["standard input, line 2", "UTF-8"]),
        ("no_run", ["/nowhere"]),
        ("no_checkpoint", ["77"]),
        ("no_member", ["/nowhere"]),
        ("bad_member", ["'@best'", "MODEL_DIR@CHECKPOINT"]),
        ("no_input", ["/nowhere/in.txt"]),
        ("no_output", ["/nowhere/", "out.txt"]),
        ("bad_beam", ["beam_size", "0"]),
        ("bad_penalty", ["length_penalty", "-1"]),
    ],
)
def test_bad_input_is_one_line(results, name, words, folder):
    status, out, err = results[name]
    assert status == 1 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not (folder / "never.txt").exists()


def test_terminal_gets_a_prompt(folder):
    terminal, keyboard = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "launch.translate", f"--model_dir={folder / 'run'}", *SHORT],
        stdin=keyboard,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(terminal, b"A man\nTwo dogs play\n\x04")
    out, err = program.communicate(timeout=120)
    os.close(keyboard)
    os.close(terminal)
    assert program.returncode == 0
    assert b"Ctrl-D" in err
    assert out.count(b"> ") == 3
    assert out.count(b"\n") == 2
