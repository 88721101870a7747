"""Compares an export with the translator from which it was made: outputs, size and times.

    python -m benchmarks.export --model_dir=runs/mine --text=test.en [--lines=1000]

The run is exported with weights in float32 and in bfloat16. `Translator` and each export translate all lines; the
exports do so through TensorFlow 1's loader in a process without Keras and, if there is a C compiler, through a program
in C. Then the exports translate single sentences in turn.
"""

import argparse
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_text

from benchmarks.turns import number
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.streams import share_out_cores
from tests.export import c_program

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PROGRAMS = _ROOT / "tests" / "export"
_BATCH_SIZE = 32

Answers = list[tuple[str, float]]


def main() -> None:
    """Exports the run, compares outputs, measures times and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--text", required=True, help="a file with one source sentence per line")
    parser.add_argument("--lines", type=number(), default=1000)
    parser.add_argument("--rounds", type=number(), default=100, help="number of single sentences for the latency")
    args = parser.parse_args()
    share_out_cores()
    lines = pathlib.Path(args.text).read_text(encoding="utf-8").splitlines()[: args.lines]
    with tempfile.TemporaryDirectory() as folder:
        versions = {
            name: _export(args.model_dir, pathlib.Path(folder) / name, name) for name in ("float32", "bfloat16")
        }
        print(f"\n| weights, way | equal of {len(lines):,} lines | largest difference of a score |")
        print("|---|---|---|")
        program = c_program.compile_program(pathlib.Path(folder))
        for name, version in versions.items():
            # An export in bfloat16 is compared with a translator with the same rounded weights.
            translator = Translator.load(args.model_dir if name == "float32" else version)
            expected = [(each.text, each.score) for each in translator.translate(lines)]
            _print_agreement(f"{name}, TensorFlow 1's loader", expected, _by_v1_loader(version, lines))
            if program:
                texts = [line.encode() for line in lines]
                answers = c_program.translate(program, _op_library(), version, texts, _BATCH_SIZE)
                _print_agreement(f"{name}, the program in C", expected, answers)
        _print_times(versions, lines[: args.rounds])


def _export(model_dir: str, export_dir: pathlib.Path, storage: str) -> pathlib.Path:
    """Runs launch.export, prints its output, and returns the directory of the version."""
    command = [sys.executable, "-m", "launch.export", f"--model_dir={os.path.abspath(model_dir)}"]
    command += [f"--export_dir={export_dir}", f"--weights={storage}"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    version = export_dir / "1"
    weights, total = (
        sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in (version / "variables", version)
    )
    print(
        f"{storage}: {time.perf_counter() - start:.0f} s with the start of Python, {weights / 1e6:.2f} MB of weights, "
        f"{total / 1e6:.2f} MB in total"
    )
    return version


def _by_v1_loader(version: pathlib.Path, lines: list[str]) -> Answers:
    requests = [
        ("serving_default", {"text": [line.encode() for line in lines[start : start + _BATCH_SIZE]]})
        for start in range(0, len(lines), _BATCH_SIZE)
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / "requests", pathlib.Path(folder) / "results"]
        files[0].write_bytes(pickle.dumps(requests))
        command: list[str | pathlib.Path] = [sys.executable, _PROGRAMS / "serve_v1.py", _op_library(), version, *files]
        subprocess.run(command, check=True, capture_output=True)
        results, *_ = pickle.loads(files[1].read_bytes())
    return [
        (text.decode(), float(score))
        for result in results
        for text, score in zip(result["translation"], result["score"], strict=True)
    ]


def _op_library() -> str:
    (path,) = pathlib.Path(tensorflow_text.__file__).parent.rglob("_sentencepiece_tokenizer.so")
    return str(path)


def _print_agreement(way: str, expected: Answers, answers: Answers) -> None:
    pairs = list(zip(expected, answers, strict=True))
    same = sum(before[0] == after[0] for before, after in pairs)
    largest = max(np.abs(before[1] - after[1]) for before, after in pairs)
    print(f"| {way} | {same:,} | {largest:.1g} |", flush=True)


def _print_times(versions: dict[str, pathlib.Path], sentences: list[str]) -> None:
    """Prints the times of loading and of single sentences for both exports, in turn."""
    functions, seconds = {}, {}
    for name, version in versions.items():
        start = time.perf_counter()
        functions[name] = tf.saved_model.load(str(version)).signatures["serving_default"]
        loaded = time.perf_counter()
        functions[name](text=tf.constant([sentences[0]]))
        seconds[name] = (loaded - start, time.perf_counter() - loaded)
    calls: dict[str, list[float]] = {name: [] for name in versions}
    for sentence in sentences:
        for name, function in functions.items():
            start = time.perf_counter()
            function(text=tf.constant([sentence]))["translation"].numpy()
            calls[name].append(1000 * (time.perf_counter() - start))
    print("\n| weights | loading, s | first call, s | a sentence alone, ms, p50 |\n|---|---|---|---|")
    for name, (loading, first) in seconds.items():
        print(f"| {name} | {loading:.1f} | {first:.1f} | {statistics.median(calls[name]):.1f} |")


if __name__ == "__main__":
    main()
