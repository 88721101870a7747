"""Measures time and memory of preparing and planning by the number of pairs, and prints a table.

    python -m benchmarks.plan --pairs=100000,1000000,10000000 --folder=synthetic
    python -m benchmarks.plan --repeated=100000000 --folder=synthetic --open_files=1024:1048576,1024:1024
    python -m benchmarks.plan --lengths=1000000000

The pairs are generated, and are the same in each run: sentences of about ten words with a long tail, from two languages
of 30,000 words.
"""

import argparse
import functools
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.turns import number
from t2t_keras.machine.peak_memory import peak_bytes
from t2t_keras.values import PositiveInt

_WORDS = 30_000
_GENERATED_PAIRS = 100_000  # at a time
_SAMPLE_SECONDS = 0.2
_TOKENS_PER_BATCH = 25_000
_MEASURED_BATCHES = 200
_REPEATED_PAIRS = 250_000  # before cleaning


def main() -> None:
    """Measures each size, and prints a table of all sizes that were measured."""
    flags = _flags()
    if flags.lengths:
        print(json.dumps(_planned_lengths(flags.lengths)))
        return
    if flags.plan:
        print(json.dumps(_planned(flags.plan)))
        return
    if flags.repeated is not None and flags.repeated <= _REPEATED_PAIRS:
        raise SystemExit(
            f"--repeated={flags.repeated}: a shard has up to {_REPEATED_PAIRS} pairs; "
            "give a larger number, for several shards"
        )
    folder = pathlib.Path(flags.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if len(flags.open_files) > 1 and not flags.repeated:
        raise SystemExit("--open_files: several limits require --repeated")
    if flags.repeated:
        print(json.dumps(_repeated(folder / "repeated", flags), indent=1))
        return
    results_path = folder / "results.json"
    results = json.loads(results_path.read_text()) if results_path.exists() else {}
    settings = {name: getattr(flags, name) for name in ("vocab_size", "processes", "open_files")}
    for pairs in map(str, flags.pairs):  # keys of JSON
        if results.get(pairs, {}).get("flags", settings) != settings:
            raise SystemExit(
                f"{results_path}: {pairs} pairs were measured with different flags; use a different --folder"
            )
        if pairs not in results:
            shutil.rmtree(folder / pairs, ignore_errors=True)  # of an interrupted measurement
            results[pairs] = {**_measured(folder / pairs, int(pairs), flags), "flags": settings}
            results_path.write_text(json.dumps(results, indent=1))
            shutil.rmtree(folder / pairs)
    print(_table(results))


def _measured(folder: pathlib.Path, pairs: int, flags: argparse.Namespace) -> dict[str, float]:
    """Returns all figures of one size: sizes in bytes, times in seconds."""
    started = time.monotonic()
    _generate(folder, pairs)
    result = {"generating": time.monotonic() - started}
    result |= _prepared(folder, flags)
    result |= _planned_apart(folder / "data", *flags.open_files[0])
    print(f"{pairs:,} pairs: {json.dumps(result)}", flush=True)
    return result


def _repeated(folder: pathlib.Path, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures opening, planning and first batches of many copies of one shard under limits of open files."""
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted measurement
    _generate(folder, _REPEATED_PAIRS)
    prepared = _prepared(folder, flags)
    files = sorted((folder / "data").glob("train.*.npy"))
    pairs = len(np.load(folder / "data" / "train.source.offsets.npy", mmap_mode="r")) - 1
    shards = -(-flags.repeated // pairs)
    for shard in range(shards):
        for path in files:
            shutil.copyfile(path, path.with_name(path.name.replace("train.", f"train.{shard:05}-of-{shards:05}.")))
    for path in files:
        path.unlink()
    files = list((folder / "data").glob("train.*.npy"))
    disk = sum(path.stat().st_size for path in files)
    result: dict[str, Any] = {"shards": shards, "disk": disk, "preparing_a_shard": prepared["preparing"]}
    for soft, most in flags.open_files:
        for path in files:
            with open(path, "rb") as file:  # out of the page cache, so that opening reads from the disk
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for state in ("from disk", "from memory"):
            result[f"{soft}:{most}, {state}"] = _planned_apart(folder / "data", soft, most)
    shutil.rmtree(folder)
    return result


def _planned_apart(data_dir: pathlib.Path, soft: int, most: int) -> dict[str, float]:
    """Runs `_planned` in a separate process with a soft and a hard limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        soft, most = min(soft, hard), min(most, hard)
    command = [sys.executable, "-m", "benchmarks.plan", f"--plan={data_dir}"]
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, most))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=limit)
    return json.loads(done.stdout)


def _generate(folder: pathlib.Path, pairs: int) -> None:
    """Writes the files "source" and "target"."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(1)
    tables = [_words(generator), _words(generator)]
    with open(folder / "source", "wb") as source, open(folder / "target", "wb") as target:
        for begin in range(0, pairs, _GENERATED_PAIRS):
            count = min(_GENERATED_PAIRS, pairs - begin)
            lengths = np.clip(generator.lognormal(2.2, 0.5, count), 2, 80).astype(np.int64)
            for file, table in zip((source, target), tables, strict=True):
                words = (_WORDS * generator.random(lengths.sum()) ** 2).astype(np.int64)  # low ranks are frequent
                words[np.cumsum(lengths) - 1] += _WORDS  # words that end a line
                file.write(b"".join(table[words].tolist()))
                lengths = np.maximum(1, lengths + generator.integers(-2, 3, count))


def _words(generator: np.random.Generator) -> np.ndarray:
    """Returns words that end with a space, and the same words with a line end, object [2 * words]."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    choices = generator.integers(0, len(syllables), [_WORDS, 4])
    counts = generator.integers(1, 5, _WORDS)
    plain = ["".join(syllables[i] for i in word[:count]) for word, count in zip(choices, counts, strict=True)]
    return np.array([f"{word}{end}".encode() for end in " \n" for word in plain], object)


def _prepared(folder: pathlib.Path, flags: argparse.Namespace) -> dict[str, float]:
    """Runs launch.prepare_data; returns the cost of each step and the peak memory of all processes together."""
    command = [sys.executable, "-m", "launch.prepare_data", f"--data_dir={folder / 'data'}"]
    command += [f"--train_{side}={folder / side}" for side in ("source", "target")]
    command += [f"--vocab_size={flags.vocab_size}", f"--processes={flags.processes}"]
    steps = {"training a ": "cleaning", "encoding valid": "vocabulary"}
    result: dict[str, float] = {}
    started = time.monotonic()
    used_before = used = _used_by_children()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        peak = _Peak(process.pid)
        for line in process.stdout:
            ended = next((step for beginning, step in steps.items() if line.startswith(beginning)), None)
            if ended is None:
                continue
            now = used_before + _used(process.pid)
            result[ended], used = now - used, now
    if process.returncode:
        raise SystemExit(f"launch.prepare_data ended with {process.returncode}")
    used_in_all = _used_by_children()
    result |= {"encoding": used_in_all - used, "processor": used_in_all - used_before}
    text = sum((folder / side).stat().st_size for side in ("source", "target"))
    disk = sum(path.stat().st_size for path in (folder / "data").iterdir())
    preparing = time.monotonic() - started
    return {**result, "preparing": preparing, "preparing_memory": peak.result(), "text": text, "disk": disk}


def _used_by_children() -> float:
    """Returns the processor seconds of all ended child processes and of their descendants."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _used(process: int) -> float:
    """Returns the processor seconds so far of a process and of its ended and running children."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(_used, _children(process)))


class _Peak:
    """Samples the peak resident memory of a process and its descendants together.

    Shared memory, such as libraries, counts once for each process.
    """

    def __init__(self, process: int) -> None:
        self._process, self._largest = process, 0
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def result(self) -> int:
        """Returns the peak in bytes after the process has ended."""
        self._thread.join()
        return self._largest

    def _sample(self) -> None:
        while resident := _resident(self._process):
            self._largest = max(self._largest, resident)
            time.sleep(_SAMPLE_SECONDS)


def _resident(process: int) -> int:
    """Returns the resident bytes of a process and its descendants; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")]
    return sum(sizes) + sum(map(_resident, _children(process)))


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _planned(data_dir: str) -> dict[str, float]:
    """Measures opening prepared data, planning an epoch, the first batch and later ones; runs in a separate process."""
    from t2t_keras.data.batching import EpochPlans, Position
    from t2t_keras.data.encoded import EncodedCorpus
    from t2t_keras.data.pipeline import training_dataset

    before = peak_bytes()
    started, used = time.perf_counter(), time.process_time()
    corpus = EncodedCorpus.open(data_dir, "train")
    plans = EpochPlans(corpus.source_lengths, corpus.target_lengths, _TOKENS_PER_BATCH, seed=1)
    opened = time.perf_counter()
    plan = plans.plan(0)
    planned = time.perf_counter()
    processor = time.process_time() - used
    planning_memory = peak_bytes() - before
    batches = iter(training_dataset(corpus, plans, Position(), 1, [0]))
    next(batches)
    first = time.perf_counter()
    count = min(_MEASURED_BATCHES, plan.num_batches - 1)
    for _ in range(count):
        next(batches)
    return {
        "kept": len(corpus),
        "open_files": len(os.listdir("/proc/self/fd")),
        "open_files_allowed": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "peak_memory": peak_bytes(),
        "opening": opened - started,
        "planning": planned - opened,
        "planning_memory": planning_memory,
        "planning_processor": processor,
        "first_batch": first - planned,
        "batch": (time.perf_counter() - first) / max(count, 1),
        "batches": plan.num_batches,
        "fill": int(corpus.target_lengths[plan.order].sum()) / int(plan.shapes[:, 0] @ plan.shapes[:, 2]),
        "tokens": int(sum(lengths[plan.order].sum() for lengths in (corpus.source_lengths, corpus.target_lengths))),
    }


def _planned_lengths(pairs: int) -> dict[str, float]:
    """Measures the first plan of pairs that have only lengths."""
    from t2t_keras.data.batching import EpochPlans

    generator = np.random.default_rng(1)
    source = np.empty(pairs, np.int32)
    for begin in range(0, pairs, _GENERATED_PAIRS):
        part = source[begin : begin + _GENERATED_PAIRS]
        part[:] = np.clip(generator.lognormal(3.2, 0.5, len(part)), 2, 256)
    target = source[::-1].copy()
    before = peak_bytes()
    started = time.perf_counter()
    plan = EpochPlans(source, target, _TOKENS_PER_BATCH, seed=1).plan(0)
    return {
        "pairs": pairs,
        "pairs_of_the_plan": len(plan.order),
        "lengths": source.nbytes + target.nbytes,
        "planning": time.perf_counter() - started,
        "planning_memory": peak_bytes() - before,
    }


def _table(results: dict[str, dict[str, float]]) -> str:
    """Formats the figures as Markdown."""
    rows = {
        "text": lambda r: f"{r['text'] / 1e9:.2f} GB",
        "prepared, on disk": lambda r: f"{r['disk'] / 1e9:.2f} GB",
        "preparing": lambda r: f"{r['preparing']:,.0f} s",
        "preparing, processor time": lambda r: f"{r['processor']:,.0f} s",
        "- reading, cleaning, duplicates": lambda r: f"{r['cleaning']:,.0f} s",
        "- vocabulary": lambda r: f"{r['vocabulary']:,.0f} s",
        "- encoding": lambda r: f"{r['encoding']:,.0f} s",
        "preparing: peak of all processes": lambda r: f"{r['preparing_memory'] / 1e9:.2f} GB",
        "opening": lambda r: f"{r['opening'] * 1e3:,.0f} ms",
        "planning an epoch": lambda r: f"{r['planning']:.2f} s",
        "opening and planning, processor time": lambda r: f"{r['planning_processor']:.2f} s",
        "opening and planning: memory": lambda r: f"{r['planning_memory'] / 1e6:,.0f} MB",
        "first batch, once planned": lambda r: f"{r['first_batch'] * 1e3:,.0f} ms",
        "each batch after it": lambda r: f"{r['batch'] * 1e3:.1f} ms",
        f"batches of {_TOKENS_PER_BATCH:,} tokens": lambda r: f"{r['batches']:,}",
    }
    lines = ["| pairs | " + " | ".join(f"{int(pairs):,}" for pairs in results) + " |"]
    lines.append("|---|" + "---:|" * len(results))
    lines += [f"| {name} | " + " | ".join(map(cell, results.values())) + " |" for name, cell in rows.items()]
    return "\n".join(lines)


def _open_files(text: str) -> list[list[int]]:
    """Parses the pairs of limits of a flag."""
    limits = [list(map(int, pair.split(":"))) for pair in text.split(",")]
    if any(len(pair) != 2 for pair in limits):
        raise ValueError(text)
    return limits


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pairs",
        type=number(tuple[PositiveInt, ...]),
        default=(100_000, 1_000_000, 10_000_000),
        help="numbers of pairs, separated by commas",
    )
    parser.add_argument("--folder", default="synthetic", help="folder for temporary files, and for the figures")
    parser.add_argument("--vocab_size", type=number(), default=37_000, help="entries of the vocabulary")
    parser.add_argument(
        "--processes", type=number(), default=len(os.sched_getaffinity(0)), help="number of preparing processes"
    )
    parser.add_argument("--lengths", type=number(), help="only plan this number of pairs, from lengths without text")
    parser.add_argument(
        "--repeated", type=number(), help="only open, plan and read this number of pairs, in copies of one shard"
    )
    parser.add_argument(
        "--open_files",
        type=_open_files,
        default="1024:1048576",
        help="SOFT:HARD, the limits of open files (ulimit -n) when planning; several for --repeated",
    )
    parser.add_argument("--plan", help=argparse.SUPPRESS)  # a folder of prepared data; prints figures as JSON
    return parser.parse_args()


if __name__ == "__main__":
    main()
