"""Finds by trial how much of a batch fits on a device; each trial runs in a separate process.

Running out of memory can end a process in many ways, or leave it unusable for a second trial. Each process therefore
tries one size, reports the outcome or dies, and releases everything that it allocated.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.machine.processes import ProcessDiedError, call_apart
from t2t_keras.runs.run import RESUMABLE, Run
from t2t_keras.training.devices.strategy import LocalDevices, make_strategy
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.stop_signals import SIGNALS
from t2t_keras.training.trainer import Trainer

# Messages of lower-level libraries, which TensorFlow may not map to ResourceExhaustedError; "Status: 1" is oneDNN's.
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|bad_alloc|[Ff]ailed to allocate|Status: 1, message: could not")


class MicroBatch(NamedTuple):
    """The part of a batch that a device computes at once; recorded in a run's directory.

    Attributes:
        tokens: tokens per side, padding included; a power of two.
        accumulation_steps: number of parts in which a device then computes its share of a global batch.
        conditions: everything that the result depends on, as plain values; None for a candidate.
    """

    tokens: int
    accumulation_steps: int
    conditions: dict[str, Any] | None = None


def find_micro_batch(
    run: Run, config: Config, data: PreparedData, devices: LocalDevices, report: Callable[[str], None]
) -> MicroBatch:
    """Finds the largest micro-batch, a power of two of tokens, that fits on one of this machine's devices.

    If `run` has recorded a result for the same conditions, it is reused. Must be called before this process computes on
    `devices`.

    Args:
        run: the run, whose directory also holds the temporary files of the trials.
        config: resolved configuration; its `train.accumulation_steps` is ignored.
        data: the prepared data.
        devices: the devices that will train.
        report: called with one line of text per trial.

    Raises:
        InputError: not even the longest pair fits, the settings or the data are invalid, or a signal stopped the
            search.
    """
    train = {f"train.{name}": value for name, value in dataclasses.asdict(config.train).items()}
    conditions: dict[str, Any] = {name: value for name, value in train.items() if name not in RESUMABLE}
    conditions |= {"model": config.to_dict()["model"], "devices": devices._asdict() | {"worker": 0}}
    conditions["longest"] = _longest(data)
    note = run.micro_batch
    if json.loads(json.dumps(conditions)) == note.get("conditions"):
        return MicroBatch(**note)
    return _search(run, config, data, devices, report)._replace(conditions=conditions)


def fit_to_memory(run: Run, config: Config, found: MicroBatch, workers: Workers) -> Config:
    """Sets `train.accumulation_steps` so that each worker's share of the global batch fits on its devices.

    Records the smallest micro-batch of all workers in `run`, for the next start.

    Raises:
        InputError: the result cannot be recorded.
        WorkerLostError: another worker was lost.
    """
    with workers.raising_worker_lost():
        findings = workers.gather(json.dumps(found[:2]).encode())
        smallest = max((MicroBatch(*json.loads(each)) for each in findings), key=lambda batch: batch.accumulation_steps)
        with workers.fail_together():
            if workers.is_chief:
                run.note_micro_batch(smallest._replace(conditions=found.conditions)._asdict())
    return _with_parts(config, smallest.accumulation_steps)


def candidates(tokens_per_batch: int, replicas: int, longest: int) -> list[MicroBatch]:
    """Returns the micro-batches to try, largest first: powers of two from a replica's share down to the longest pair.

    Args:
        tokens_per_batch: token budget of a global batch.
        replicas: number of replicas of all workers.
        longest: number of tokens of the longest side of any pair.
    """
    share = -(-tokens_per_batch // replicas)
    largest, smallest = (1 << (tokens - 1).bit_length() for tokens in (share, min(longest, share)))
    sizes = (1 << power for power in range(largest.bit_length() - 1, smallest.bit_length() - 2, -1))
    return [MicroBatch(tokens, -(-share // tokens)) for tokens in sizes]


def _search(
    run: Run, config: Config, data: PreparedData, devices: LocalDevices, report: Callable[[str], None]
) -> MicroBatch:
    for candidate in candidates(config.train.tokens_per_batch, devices.all_replicas, _longest(data)):
        reason = _try(run, _with_parts(config, candidate.accumulation_steps), data, devices)
        parts = f"{candidate.accumulation_steps} part{'s' if candidate.accumulation_steps > 1 else ''}"
        outcome = f"too much ({reason})" if reason else "fits"
        report(f"{candidate.tokens:,} tokens on a device at once, {parts}: {outcome}")
        if not reason:
            return candidate
    raise InputError(
        f"not even {candidate.tokens:,} tokens on a device at once fit, no more than a single long pair ({reason}): "
        "take a smaller model, or prepare the data with a smaller --max_length"
    )


def _try(run: Run, config: Config, data: PreparedData, devices: LocalDevices) -> str:
    """Returns why a training does not fit in memory, in a few words, or "" if it fits."""
    run.path.mkdir(parents=True, exist_ok=True)
    # Inside the run's directory, because a checkpoint may be too large for the system's temporary folder.
    folder = run.path / f"micro_batch_try_{devices.worker}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        outcome = call_apart(_outcome, config, str(data.directory), devices, str(folder))
    except ProcessDiedError as error:
        if -error.exit_code in SIGNALS:
            raise InputError(f"the search was stopped by {signal.Signals(-error.exit_code).name}") from error
        killed = error.exit_code < 0
        return f"ended by {signal.Signals(-error.exit_code).name}" if killed else str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome.fault:
        raise InputError(f"trying how large a batch fits: {outcome.fault}")
    return outcome.shortage


class _Outcome(NamedTuple):
    """The outcome of a trial; both texts are empty if the batch fits."""

    fault: str = ""  # in the settings or the data
    shortage: str = ""  # any other failure, because lack of memory is not always reported as that


def _outcome(config: Config, data_dir: str, devices: LocalDevices, model_dir: str) -> _Outcome:
    """Runs a trial; this is the main function of the separate process.

    Unpickling `config` there imports the module of its model family.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if the machine runs out of memory, the kernel kills this process first
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides stderr; the outcome is reported in one line
    try:
        _train_once(config, data_dir, devices, model_dir)
    except Exception as error:
        if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError) or _NO_MEMORY.search(str(error)):
            return _Outcome(shortage="out of memory")
        if isinstance(error, InputError):
            return _Outcome(fault=str(error))
        return _Outcome(shortage=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}")
    return _Outcome()


def _train_once(config: Config, data_dir: str, devices: LocalDevices, model_dir: str) -> None:
    """Trains for one step on this machine's devices, including the largest batch, a validation and a checkpoint."""
    strategy = make_strategy(devices.strategy, devices.replicas)
    data = PreparedData.open(data_dir)
    # Each replica gets the share that it will have when all workers train.
    share = -(-config.train.tokens_per_batch * devices.replicas // devices.all_replicas)
    tokens_per_batch = max(share, min(_longest(data), config.train.tokens_per_batch))
    train = dataclasses.replace(config.train, max_steps=1, tokens_per_batch=tokens_per_batch)
    outcome = Trainer(Run(model_dir), dataclasses.replace(config, train=train), data, strategy).train()
    if outcome.step != 1 or outcome.signal:
        raise InputError(outcome.reason)


def _longest(data: PreparedData) -> int:
    """Returns the number of tokens of the longest side of any training pair."""
    corpus = data.split("train")
    return int(max(corpus.source_lengths.max(), corpus.target_lengths.max()))


def _with_parts(config: Config, accumulation_steps: int) -> Config:
    return dataclasses.replace(config, train=dataclasses.replace(config.train, accumulation_steps=accumulation_steps))
