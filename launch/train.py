"""Trains a model on prepared data, or resumes a stopped run.

Example:
    python -m launch.train --data_dir=data/mine --model_dir=runs/mine --preset=tiny --set model.dropout_rate=0.1
"""

import dataclasses
import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.config import Config, DecodeConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.machine.standard_error import tell
from t2t_keras.models import presets
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run, RunCheckpoint
from t2t_keras.tasks.registry import task
from t2t_keras.training.devices import cluster
from t2t_keras.training.devices.cluster import WorkerLostError
from t2t_keras.training.new_config import completed, search_of_data, search_of_task
from t2t_keras.values import NonNegativeInt, PositiveInt

from . import program, remote_paths, remote_training
from .flag_groups import extensions
from .flag_types import ANY, NEW_FOLDER, DEFINE_number, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.training.trainer import Outcome

_DATA_DIR = DEFINE_path("data_dir", None, "Prepared data (launch.prepare_data); default: the run's data.", ANY)
_MODEL_DIR = DEFINE_path("model_dir", None, "The directory of a new or existing run.", NEW_FOLDER, required=True)
_PRESET = flags.DEFINE_string("preset", None, f"Sizes of the model and training recipe: {', '.join(presets.PRESETS)}.")
_INIT_FROM = DEFINE_path(
    "init_from",
    None,
    "A run with the same vocabulary whose weights initialize a new run, MODEL_DIR or MODEL_DIR@CHECKPOINT; without "
    "other flags, the new run also has its settings and data.",
    ANY,
)
_SET = flags.DEFINE_multi_string("set", [], "Overrides a setting: section.field=value; sections: model, train, decode.")
_STRATEGY = flags.DEFINE_enum("strategy", "auto", cluster.STRATEGIES, "The devices to train on.")
_CLUSTER = flags.DEFINE_enum("cluster", "auto", cluster.NAMES, "The source of the addresses of several machines.")
_REPLICAS = DEFINE_number(
    "replicas", 0, "Number of replicas; 0: one per device. On a CPU: number of logical devices.", NonNegativeInt
)
_MODEL_PARALLEL = DEFINE_number(
    "model_parallel", 1, "Devices that share one copy of the weights; above 1 only with Keras on JAX.", PositiveInt
)
flags.adopt_module_key_flags(extensions)
program.REMOTE |= {"model_dir": remote_paths.place, "data_dir": remote_paths.read, "init_from": remote_paths.member}

_DEFAULTS = DecodeConfig()
_WORKER_LOST = 75  # the exit status that means "try again" (EX_TEMPFAIL)


def main(argv: list[str]) -> None:
    """Trains the run that the flags describe."""
    try:
        outcome = _train(Run(_MODEL_DIR.value))
    except WorkerLostError as error:
        tell(f"error: {error}")
        os._exit(_WORKER_LOST)  # an orderly end would wait for the lost worker
    tell(f"step {outcome.step:,}: {outcome.reason}")
    if outcome.signal:
        sys.exit(128 + outcome.signal)


def _train(run: Run) -> "Outcome":
    if remote.mirror_of(run.path) is None:  # a mirror may still contain an earlier run with this URL
        run.check_trainable()
        if not _may_have_other_workers():
            _inputs(run)  # raises before TensorFlow is imported, which takes seconds
    from t2t_keras.training.backends import make_devices, make_workers, need_static_shapes
    from t2t_keras.training.trainer import Trainer

    strategy = make_devices(_STRATEGY.value, _REPLICAS.value, _CLUSTER.value, _MODEL_PARALLEL.value)
    workers = make_workers(strategy)
    with remote_training.held(run.path, workers):
        run = Run(run.path)  # as it was fetched
        with workers.raising_worker_lost(), workers.fail_together():
            data, config, init_from = _inputs(run, need_static_shapes(strategy))
        trainer = Trainer(run, config, data, strategy, init_from)
        if workers.is_chief:
            tell(*map(remote.with_urls, trainer.account))
        return trainer.train()


def _may_have_other_workers() -> bool:
    """Returns whether there may be other workers, which must all end if one of them refuses its input."""
    on_jax = os.environ.get("KERAS_BACKEND") == "jax"
    return on_jax or _CLUSTER.value != "auto" or cluster.find_cluster() is not None


def _inputs(run: Run, on_static_shapes: bool = False) -> tuple[PreparedData, Config, RunCheckpoint | None]:
    """Returns the data, the settings (see `_config`) and the run to start from.

    Raises:
        InputError: flags or files are invalid.
    """
    data = PreparedData.open(_data_dir(run))
    return data, _config(run, data, on_static_shapes), _init_from(run)


def _data_dir(run: Run) -> str:
    """Returns --data_dir, or the data directory of the run or of the run that it starts from."""
    if _DATA_DIR.value:
        return _DATA_DIR.value
    base = _base_run(run)
    if base is None:
        raise InputError(f"--data_dir must be given to start a run in {run.path}")
    return str(base.data_dir)


def _base_run(run: Run) -> Run | None:
    """Returns the run that supplies missing flags: the run itself, or the run that it starts from."""
    if _INIT_FROM.value and not checkpoints.exist(run.checkpoints_path):
        return Run(RunCheckpoint.parse(_INIT_FROM.value).model_dir)
    return run if run.exists else None


def _init_from(run: Run) -> RunCheckpoint | None:
    """Returns the run to start from; without flags, the run that an existing run recorded as its start."""
    if _INIT_FROM.value:
        return RunCheckpoint.parse(_INIT_FROM.value)
    record = run.init_from if run.exists and not _PRESET.value else {}
    if record and checkpoints.exist(run.checkpoints_path):
        return RunCheckpoint(record["model_dir"], record["checkpoint"])  # for comparison; the weights are not read
    return RunCheckpoint(remote.local(record["model_dir"]), record["checkpoint"]) if record else None


def _config(run: Run, data: PreparedData, on_static_shapes: bool = False) -> Config:
    """Returns the settings of the preset, of the existing run, or of the run that it starts from, fitted to the data.

    The flags override these settings.

    Args:
        run: the run.
        data: the prepared data.
        on_static_shapes: whether the devices require static shapes; a trained run keeps its setting, and its search.
    """
    base = _base_run(run)
    if _PRESET.value:
        config = presets.preset(_PRESET.value)
        decode, fits_text = search_of_task(config.decode, data.config), presets.is_small(_PRESET.value)
    elif base is not None:
        config = base.config
        default = search_of_task(_DEFAULTS, config.data)
        decode, fits_text = config.decode, config.decode.length_limit != default.length_limit
        if config.data.task != data.config.task:
            # The limit was made to fit the other task's data.
            defaults = {
                name: getattr(_DEFAULTS, name) for name in (*_DEFAULTS.length_limit, *task(config.data.task).decode)
            }
            decode = search_of_task(dataclasses.replace(decode, **defaults), data.config)
    else:
        raise InputError(f"--preset must be given to start a run; valid: {', '.join(presets.PRESETS)}")
    is_static = on_static_shapes or config.train.static_shapes
    if run.exists and checkpoints.exist(run.checkpoints_path):
        decode, is_static = run.config.decode, run.config.train.static_shapes
    else:
        decode = search_of_data(decode, data, _SET.value, fits_text)
    train = dataclasses.replace(config.train, static_shapes=is_static)
    return completed(dataclasses.replace(config, train=train, decode=decode), data, _SET.value)


run = program.command(main, on_any_backend=True)
