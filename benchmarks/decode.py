"""Compares the decoding speed of this project with that of other engines with the same weights, turn by turn.

    python -m benchmarks.decode --data_dir=data/multi30k --model_dir=runs/multi30k
    python -m benchmarks.decode --data_dir=data/multi30k --preset=tiny

All engines translate sentences of the test split in batches sorted by length. With a trained model, outputs first end
where the model ends them, and the measurement includes the conversion from and to text. Then, and with random weights,
all outputs have a fixed number of tokens, the end symbol is excluded, and only the search on token ids is measured.
Every number is the range of several runs, each of which starts new processes. Before the measurement, each engine must
translate and score a few sentences like this project. An engine with missing packages is skipped with a note.
`--python marian=PATH` runs an engine with the interpreter of a different environment.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.decode_engines import ENGINES, WITH_MKL
from benchmarks.decode_report import Numbers, agreement, compare_latencies, print_table
from benchmarks.decode_task import model_and_weights, pick_sentences, vocabularies
from benchmarks.turns import Worker, last_line, number, take_turns
from t2t_keras.data.prepare import PreparedData
from t2t_keras.machine.processor import processor
from t2t_keras.symbols import EOS_ID
from t2t_keras.values import PositiveInt

# Engines with rounded weights may have different outputs.
ROUNDED = ("ours_bfloat16", "ours_ctranslate2_int8", "ctranslate2_int8", "ctranslate2_int8_one_worker")
# On processors of other makers than Intel, CTranslate2 uses the faster library for products only on request.
MKL_ENGINES = tuple(f"{name}{WITH_MKL}" for name in ENGINES if name.startswith("ctranslate2"))
NATURAL, FIXED = "natural", "fixed"
# Limit of a natural output: more than any sentence needs, because not all engines count the end symbol.
MAX_FREE_TOKENS = 200
_LARGEST_SCORE_ERROR = 1e-4  # of a log-probability; rounding in float32 causes about 5e-6
_MIN_SAME = 0.9  # share of greedy outputs; rounding decides between equally likely tokens


class Bench:
    """The task and the weights that all workers share, and the commands that start the workers.

    Args:
        folder: folder for files.
        interpreters: Python interpreters by engine, for engines with a separate environment.
        task: the task of the workers, without the beam size.
        weights: arrays by name.
    """

    def __init__(
        self, folder: str, interpreters: dict[str, str], task: dict[str, Any], weights: dict[str, Any]
    ) -> None:
        self._folder, self._interpreters = folder, interpreters
        self._weights_path = os.path.join(folder, "weights.npz")
        self._converted = os.path.join(folder, "ctranslate2")
        self._task = {**task, "ctranslate2_model": self._converted}
        np.savez(self._weights_path, **weights)

    def convert(self, engine: str) -> str:
        """Converts the model for CTranslate2 engines, unless this is done; returns an error message or ''."""
        if not engine.startswith("ctranslate2") or os.path.exists(self._converted):
            return ""
        model_path = self._write("model.json", self._task["model"])
        command = [self._interpreter(engine), "-m", "benchmarks.ctranslate2_model"]
        command += [self._weights_path, model_path, self._converted]
        done = subprocess.run(command, capture_output=True, text=True)
        return last_line(done.stderr) if done.returncode else ""

    def start(self, engine: str, role: str, **changes: Any) -> Worker:
        """Starts a worker of an engine with a changed task; see `decode_engines`."""
        task_path = self._write(f"{engine}_{role}.json", {**self._task, **changes})
        command = [self._interpreter(engine), "-m", "benchmarks.decode_engines"]
        command += [engine, task_path, self._weights_path, role]
        variables = {"CT2_USE_MKL": "1"} if engine.endswith(WITH_MKL) else {}
        return Worker(engine, command, os.path.join(self._folder, f"{engine}.log"), variables)

    def ask(self, engine: str, role: str, **changes: Any) -> dict[str, Any]:
        """Starts a worker and returns its report, or {"failure": reason} if it does not become ready."""
        worker = self.start(engine, role, **changes)
        worker.close()
        return worker.about or {"failure": worker.failure}

    def _interpreter(self, engine: str) -> str:
        shared = "ctranslate2" if engine.startswith("ctranslate2") else engine
        return self._interpreters.get(engine, self._interpreters.get(shared, sys.executable))

    def _write(self, name: str, values: dict[str, Any]) -> str:
        path = os.path.join(self._folder, name)
        with open(path, "w") as file:
            json.dump(values, file)
        return path


def check_engines(bench: Bench, engines: Sequence[str]) -> list[str]:
    """Checks that each engine computes our model; returns the engines that can run."""
    reference, valid = None, []
    for engine in ("ours", *(name for name in engines if name != "ours")):
        failure = bench.convert(engine)
        about: dict[str, Any] = {"failure": failure} if failure else bench.ask(engine, "proof", beam_size=1)
        if "failure" in about:
            if engine == "ours":
                raise RuntimeError(f"ours does not run: {about['failure']}")
            print(f"{engine} is skipped: {about['failure']}", file=sys.stderr)
            continue
        reference = reference or about
        same = sum(map(list.__eq__, about["outputs"], reference["outputs"]))
        error = largest_difference(about["log_probs"], reference["log_probs"])
        count = len(about["outputs"])
        if engine != "ours":
            print(
                f"{engine}: {same} of {count} greedy outputs are ours, log-probabilities differ by {error:.1e} at most"
            )
        if engine.removesuffix(WITH_MKL) not in ROUNDED and (error > _LARGEST_SCORE_ERROR or same < _MIN_SAME * count):
            raise RuntimeError(f"{engine} does not compute our model")
        valid.append(engine)
        print(f"{engine}: {about['versions']}", flush=True)
    return [engine for engine in valid if engine in engines]


def largest_difference(left: list[list[float]], right: list[list[float]]) -> float:
    """Returns the largest difference over all tokens of all sentences; infinite for different numbers of tokens."""
    if [len(row) for row in left] != [len(row) for row in right]:
        return float("inf")
    return max(abs(a - b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def measure(bench: Bench, engines: Sequence[str], beam_size: int, rounds: int, tries: int) -> dict[str, Numbers]:
    """Returns the numbers of each engine."""
    workers = [bench.start(engine, "turns", beam_size=beam_size) for engine in engines]
    for worker in workers:
        if worker.failure:
            raise RuntimeError(f"{worker.name} does not start: {worker.failure}")
    take_turns(workers, rounds, tries)
    numbers = {worker.name: Numbers.of(worker) for worker in workers}
    for worker in workers:
        worker.close()
    return numbers


def explain(bench: Bench, sources: list[list[int]], beam_size: int, numbers: dict[str, Numbers]) -> None:
    """Prints for each other engine how often its outputs are more and less likely than ours under our model."""
    our_outputs = numbers["ours"].outputs
    for name, theirs in numbers.items():
        rows = [row for row, (a, b) in enumerate(zip(our_outputs, theirs.outputs, strict=True)) if a != b]
        if name == "ours" or not rows:
            continue
        targets = [[*outputs[row], EOS_ID] for outputs in (our_outputs, theirs.outputs) for row in rows]
        changes = {"proof_sources": [sources[row] for row in rows] * 2, "proof_targets": targets}
        totals = np.array([sum(row) for row in bench.ask("ours", "score", beam_size=beam_size, **changes)["log_probs"]])
        print(agreement(name, totals[: len(rows)], totals[len(rows) :]), flush=True)


def main() -> None:
    """Checks the engines, measures them and prints the results."""
    flags = parser().parse_args()
    data = PreparedData.open(flags.data_dir)
    sentences = pick_sentences(data, flags)
    lengths = [len(ids) for name, part in sentences.items() if not name.endswith("texts") for ids in part]
    rows = max(*lengths, flags.output_tokens, MAX_FREE_TOKENS) + 8
    model, weights = model_and_weights(flags, data.tokenizer.vocab_size, rows)
    task = {
        **sentences,
        "vocabularies": vocabularies(data),
        "model": dataclasses.asdict(model),
        "batch_sentences": flags.batch_sentences,
        "max_tokens": MAX_FREE_TOKENS,
    }
    print(f"{processor()}")
    results = {}
    for endings in flags.endings or ([NATURAL, FIXED] if flags.model_dir else [FIXED]):
        output_tokens = None if endings == NATURAL else flags.output_tokens
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(folder, dict(flags.python), {**task, "output_tokens": output_tokens}, weights)
            results[endings] = compare(bench, flags, sentences["sources"], output_tokens)
    if flags.output:
        with open(flags.output, "w") as file:
            about = {"processor": processor(), "flags": vars(flags)}
            json.dump({**about, "results": results}, file, indent=1)


def compare(
    bench: Bench, flags: argparse.Namespace, sources: list[list[int]], output_tokens: int | None
) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Checks the engines, measures them and prints tables; returns the numbers of all runs by beam size."""
    results = {}
    engines = check_engines(bench, flags.engines)
    for beam_size in flags.beam_sizes:
        runs = [measure(bench, engines, beam_size, flags.rounds, flags.tries) for _ in range(flags.runs)]
        numbers = {name: [run[name] for run in runs] for name in engines}
        results[beam_size] = {name: [dataclasses.asdict(run) for run in each] for name, each in numbers.items()}
        length = "of natural length" if output_tokens is None else f"of {output_tokens} tokens"
        print(f"\nbeam {beam_size}, {len(sources)} sentences, each output {length}; ranges of {flags.runs} runs\n")
        print_table(numbers)
        print(*compare_latencies(numbers), sep="\n")
        if output_tokens is None and "ours" in engines:
            explain(bench, sources, beam_size, runs[-1])
    return results


def default_engines(processor: str) -> list[str]:
    """Returns the engines that are useful on a processor, given its name."""
    return [*ENGINES, *([] if "Intel" in processor else MKL_ENGINES)]


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""

    def names(text: str) -> list[str]:
        engines = text.split(",")
        known = (*ENGINES, *MKL_ENGINES)
        if unknown := set(engines) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; valid: {', '.join(known)}")
        return engines

    def interpreter(text: str) -> tuple[str, str]:
        engine, equals, path = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"expected ENGINE=interpreter, got {text!r}")
        if shutil.which(path) is None:
            raise argparse.ArgumentTypeError(f"{path}: no such program")
        return engine, path

    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data_dir", required=True, help="prepared data (launch.prepare_data) with a test split")
    model = flags.add_mutually_exclusive_group(required=True)
    model.add_argument("--model_dir", help="a run, whose weights all engines use")
    model.add_argument("--preset", help="sizes of a model with random weights")
    flags.add_argument("--checkpoint", help="checkpoint of --model_dir, as in launch.translate")
    flags.add_argument("--seed", type=int, default=1, help="seed of random weights")
    flags.add_argument(
        "--sentences", type=number(), default=200, help="number of sentences, from the start of the test split"
    )
    flags.add_argument("--batch_sentences", type=number(), default=32)
    flags.add_argument("--output_tokens", type=number(), default=30, help="fixed number of tokens of an output")
    flags.add_argument(
        "--endings",
        action="append",
        choices=[NATURAL, FIXED],
        help="natural: where the model ends outputs; fixed: after --output_tokens; default: both; for presets, fixed",
    )
    flags.add_argument("--runs", type=number(), default=3, help="number of runs, over which ranges are printed")
    flags.add_argument(
        "--beam_sizes", type=number(tuple[PositiveInt, ...]), default=[1, 4], help="beam sizes, separated by commas"
    )
    flags.add_argument("--rounds", type=number(), default=5)
    flags.add_argument(
        "--tries", type=number(), default=4, help="maximum number of tries of a turn, until the machine is quiet"
    )
    flags.add_argument(
        "--latency_sentences",
        type=number(),
        default=20,
        help="number of sentences that are translated one by one in a turn",
    )
    flags.add_argument(
        "--latency_words", type=number(), default=13, help="approximate number of words of these sentences"
    )
    flags.add_argument(
        "--engines",
        type=names,
        default=default_engines(processor()),
        help=f"engines, separated by commas: {', '.join(ENGINES)}; a name with {WITH_MKL} sets CT2_USE_MKL=1",
    )
    about_python = "ENGINE=interpreter; ctranslate2=... applies to all engines whose names begin with it"
    flags.add_argument("--python", action="append", type=interpreter, default=[], help=about_python)
    flags.add_argument("--output", help="JSON file for the numbers")
    return flags


if __name__ == "__main__":
    main()
