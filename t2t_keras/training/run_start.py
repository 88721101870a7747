"""Starts a run: prepares its directory and, if requested, initialises its weights from a different run."""

import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError, named
from t2t_keras.machine import remote
from t2t_keras.machine.files import sha256
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import assign_known_weights
from t2t_keras.runs import checkpoints
from t2t_keras.runs.load import load_weights
from t2t_keras.runs.run import Run, RunCheckpoint, weights_path
from t2t_keras.text.extension import spellings
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.training.devices.workers import Workers


class WeightOrigin(NamedTuple):
    """The origin of a run's initial weights; recorded in `config.json`, except for `spelled`.

    Attributes:
        model_dir: directory of the original run or export.
        checkpoint: the requested checkpoint name; None for the default.
        path: directory of the resolved checkpoint or of the export's version, or its URL in object storage.
        weights: checksum of the weights.
        spelled: for the target and the source vocabulary: for each entry that was appended to the original
            vocabulary, the original ids that spell it.
    """

    model_dir: str
    checkpoint: str | None
    path: str
    weights: str
    spelled: tuple[list[list[int]], list[list[int]]]


def prepare_run(
    run: Run, config: Config, data: PreparedData, text: str, init_from: RunCheckpoint | None, workers: Workers
) -> WeightOrigin | None:
    """Prepares the directory of a new or resumed run. Every worker calls this; only the chief writes.

    If the run resumes, `init_from` must match the recorded origin by name, or else by its weights.

    Args:
        run: the run to prepare.
        config: resolved configuration.
        data: the prepared data.
        text: fingerprint of the training text.
        init_from: the run to take the initial weights from, or None.
        workers: the processes that train together.

    Returns:
        The origin of the initial weights, or None if the run resumes or its weights are initialised randomly.

    Raises:
        InputError: the settings, the vocabulary, the training text or the origin of the weights differ from the run's,
            `init_from` does not exist, or its vocabulary is not a prefix of the data's.
    """
    origin = None
    with workers.fail_together():
        if workers.is_chief:
            origin = _start_run(run, config, data, text, init_from)
    first, *_ = workers.gather(json.dumps(origin).encode())
    values = json.loads(first)
    return None if values is None else WeightOrigin(*values)


def take_weights(model: SequenceModel, origin: WeightOrigin, workers: Workers) -> list[str]:
    """Initialises a built model from those weights of `origin` whose names match, and returns a report in lines.

    Raises:
        InputError: shapes differ, no name matches, or the workers read different weights.
    """
    with workers.fail_together():
        weights = load_weights(pathlib.Path(remote.local(origin.path)))
        with named(origin.path):
            account = assign_known_weights(model, weights, origin.spelled)
    workers.check_same(f"weights in {origin.path}", _checksum(weights))
    return [f"starts from the weights of {origin.path}", *account.lines()]


def _checksum(weights: Mapping[str, np.ndarray]) -> str:
    checksum = 0
    for name in sorted(weights):
        checksum = zlib.crc32(weights[name].tobytes(), zlib.crc32(name.encode(), checksum))
    return f"{checksum:08x}"


def _start_run(
    run: Run, config: Config, data: PreparedData, text: str, init_from: RunCheckpoint | None
) -> WeightOrigin | None:
    run.check_trainable()
    with run.lock():
        run.remove_leftovers()
        is_trained = checkpoints.exist(run.checkpoints_path)
        if is_trained:
            _check_same_origin(run, init_from)
            if not checkpoints.steps(run.checkpoints_path):
                raise InputError(
                    f"{run.checkpoints_path} contains averages but no step to resume from: copy a step back, or "
                    f"use a different --model_dir, perhaps with --init_from={run.path}"
                )
        else:
            run.forget()  # no checkpoint exists yet, so settings may still change
        origin = _resolve(init_from, data.vocab_path) if init_from and not is_trained else None
        record = {} if origin is None else origin._asdict()
        record.pop("spelled", None)
        run.start(config, data.directory, data.vocab_path, record, text)
    return origin


def _resolve(init_from: RunCheckpoint, vocab_path: pathlib.Path) -> WeightOrigin:
    """Resolves `init_from`, whose vocabulary must equal the one at `vocab_path` or be a prefix of it."""
    run = Run(init_from.model_dir)
    path = weights_path(run, init_from.checkpoint)
    old, new = Tokenizer.load(run.vocab_path), Tokenizer.load(vocab_path)
    try:
        if (old.source is old) != (new.source is new):
            raise ValueError("only one of them has a vocabulary of sources")
        spelled = (spellings(old, new), spellings(old.source, new.source))
    except ValueError:
        sums = sha256(vocab_path)[:12], sha256(run.vocab_path)[:12]
        raise InputError(
            f"{vocab_path} (SHA-256 {sums[0]}...) does not begin with the entries of {run.vocab_path} "
            f"({sums[1]}...): weights can only be taken if it does; see --vocab_from of launch.prepare_data"
        ) from None
    weights = _checksum(load_weights(path))
    return WeightOrigin(remote.origin(init_from.model_dir), init_from.checkpoint, remote.origin(path), weights, spelled)


def _check_same_origin(run: Run, init_from: RunCheckpoint | None) -> None:
    """Raises an InputError if a resumed run started from different weights; None always resumes."""
    if init_from is None:
        return
    record: dict[str, Any] = run.init_from
    request = {"model_dir": remote.origin(init_from.model_dir), "checkpoint": init_from.checkpoint}
    if request != {name: record.get(name) for name in request} and not _has_weights(init_from, record.get("weights")):
        origin = f"from {record['path']}" if record else "with random weights"
        raise InputError(f"{run.path} began {origin}; omit --init_from, or use a different --model_dir")


def _has_weights(init_from: RunCheckpoint, checksum: str | None) -> bool:
    """Returns whether `init_from` has the weights with this checksum; the original folder may have been moved."""
    try:
        path = weights_path(Run(init_from.model_dir), init_from.checkpoint)
        return checksum is not None and _checksum(load_weights(path)) == checksum
    except InputError:  # the weights do not exist there
        return False
