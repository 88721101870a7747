"""The phases of training and ensemble jobs. Only the process that runs a phase imports this module and TensorFlow."""

import contextlib
import dataclasses
import datetime
import functools
import pathlib
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import keras
import sacrebleu
import tensorflow as tf

from t2t_keras import evaluation
from t2t_keras.config import Config, TrainConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.files import read_cache, write_json
from t2t_keras.machine.locking import locked
from t2t_keras.machine.processor import num_cores, processor
from t2t_keras.machine.streams import map_in_parallel, num_streams, share_out_cores
from t2t_keras.runs import averaging, checkpoints
from t2t_keras.runs.records import Record, read_metrics
from t2t_keras.runs.run import Run, RunCheckpoint
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.matrix_rate import matrix_rate, update_stored_rate
from t2t_keras.studies.performing import StoppedError
from t2t_keras.studies.states import RECORD, read_record
from t2t_keras.studies.training_job import ORIGIN, EnsembleJob, TrainingJob
from t2t_keras.tasks.score import Score
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.text.languages import language_of
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.monitor import Interval
from t2t_keras.training.trainer import Trainer

# Results that are costs. The cost of a model includes the costs of all trainings that contribute to it.
_COSTS = ("hours", "flops_by_count", "flops_by_time")
_TRAINING = "training.json"  # results of the training; an evaluation on a different machine leaves them unchanged
_SPARE = 4  # extra checkpoints to keep


def train(job: TrainingJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Trains the run, or resumes it.

    Returns:
        "parameters": number of parameters.
        "updates": number of updates.
        "target_tokens": number of target tokens, without padding.
        "hours": hours of training, without validation.
        "flops_by_count": planned operations per token times the number of tokens.
        "flops_by_time": training time times matrix-product throughput of all devices, similar to the paper's estimate
            (section 6.1, Table 2).
        "matrix_flops_per_second": matrix-product throughput of one device.
        "devices", "machine": number and description of the devices.

        Hours and operations include those of the training that provided the initial weights.

    Raises:
        InputError: see `Trainer`.
        StoppedError: a signal stopped the training; its progress is saved.
    """
    strategy = make_strategy("auto")
    data = PreparedData.open(study_dir / job.data_dir)
    run = Run(study_dir / job.name)
    initial = _initial_checkpoint(job, study_dir)
    old_steps = checkpoints.steps(run.checkpoints_path)
    # Keeps extra checkpoints, because those saved on signals must not displace those that will be averaged.
    spare = dataclasses.replace(job.config.train, keep_checkpoints=_num_needed(job.config.train) + _SPARE)
    outcome = Trainer(run, dataclasses.replace(job.config, train=spare), data, strategy, initial).train()
    if outcome.signal:
        raise StoppedError(outcome.signal)
    results = read_cache(run.path / _TRAINING) if old_steps and old_steps[-1] == outcome.step else {}
    if results.get("updates") != outcome.step:  # a killed process may have left outdated results
        results = _training_results(job, study_dir, run, data, strategy.num_replicas_in_sync)
        write_json(run.path / _TRAINING, results)
    origins = [job.begins_from] if job.begins_from else []
    return {**results, **_sums(_COSTS, [results, *_results_of(origins, study_dir)])}


def _training_results(
    job: TrainingJob, study_dir: pathlib.Path, run: Run, data: PreparedData, devices: int
) -> dict[str, Any]:
    """Returns the results of a training on this machine, without the costs of its initial weights."""
    lines = [record for record in read_metrics(run.metrics_path) if record["kind"] == "train"]
    tokens, seconds = _training_work(run, lines)
    machine, rate = _machine(study_dir)
    return {
        "parameters": sum(job.config.model.parameter_counts().values()),
        "updates": checkpoints.steps(run.checkpoints_path)[-1],
        "target_tokens": int(tokens),
        "hours": seconds / 3600,
        "flops_by_count": tokens * job.config.train.passes * DataFacts.of(data).training_flops(job.config.model),
        "flops_by_time": seconds * devices * rate,
        "matrix_flops_per_second": rate,
        "devices": devices,
        "machine": machine,
    }


def _initial_checkpoint(job: TrainingJob, study_dir: pathlib.Path) -> RunCheckpoint | None:
    """Returns the checkpoint with the initial weights of a training, and records its settings in the job's folder.

    Returns None if the training starts from random weights or already has a checkpoint.
    """
    folder, origin = study_dir / job.name, job.begins_from
    if origin is None or checkpoints.exist(Run(folder).checkpoints_path):
        return None
    _check_weights([origin], study_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ORIGIN, {origin.name: origin.settings()})
    return RunCheckpoint(study_dir / origin.name, origin.average)


def _check_weights(jobs: Sequence[TrainingJob], study_dir: pathlib.Path) -> None:
    """Raises an InputError if a training has no weights, for instance because only its record was copied."""
    for job in jobs:
        folder = study_dir / job.name
        if not checkpoints.exist(Run(folder).checkpoints_path):
            raise InputError(f"{folder} has a record but no weights; to train it, delete its {RECORD}")


def evaluate(job: TrainingJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Averages checkpoints of the run and evaluates the average.

    Returns:
        "best_step": step of the checkpoint with the best validation result, or of the last one.
        The results of `_evaluate`.
    """
    _share_out_cores()
    run = Run(study_dir / job.name)
    with _lock(run.path):
        best_step = _average(run, job.config, job.average)
        translator = Translator.load(run.path, job.average, job.config.decode)
        return {"best_step": best_step, **_evaluate(translator, PreparedData.open(study_dir / job.data_dir), run.path)}


def evaluate_ensemble(job: EnsembleJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Evaluates the members' averaged weights as one ensemble.

    Returns:
        Sums of the members' parameters and costs, and the results of `_evaluate`.
    """
    _share_out_cores()
    with _lock(study_dir / job.name):
        first = job.members[0]
        _check_weights(job.members, study_dir)
        members = [RunCheckpoint(study_dir / member.name, member.average) for member in job.members]
        translator = Translator.load_ensemble(members, settings=first.config.decode)
        results = _evaluate(translator, PreparedData.open(study_dir / first.data_dir), study_dir / job.name)
    return {**_sums(("parameters", *_COSTS), _results_of(job.members, study_dir)), **results}


def _results_of(jobs: Sequence[TrainingJob], study_dir: pathlib.Path) -> list[dict[str, Any]]:
    records = [read_record(study_dir / job.name) for job in jobs]
    return [record["results"] for record in records if record]


def _sums(names: Sequence[str], results: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns the sum of each named result; None if one of its values is None."""
    values = {name: [result[name] for result in results] for name in names}
    return {name: None if None in numbers else sum(numbers) for name, numbers in values.items()}


def _training_work(run: Run, lines: Sequence[Record]) -> tuple[float, float]:
    """Returns the target tokens and seconds of all updates: those in the metrics, and those since their last line.

    On a CPU, the seconds are processor time divided by the number of cores, so that other load does not count.
    """
    newest = checkpoints.load(checkpoints.resolve(run.checkpoints_path, "latest"), weights_only=True)
    rest = Interval(*newest.state.get("interval", []))
    tokens = rest.tokens + sum(line["tokens"] for line in lines)
    if tf.config.list_physical_devices("GPU"):
        return tokens, rest.seconds + sum(line["seconds"] for line in lines)
    busy = rest.processor_seconds + sum(line["processor_seconds"] for line in lines)
    return tokens, busy / num_cores()


def _machine(study_dir: pathlib.Path) -> tuple[str, float]:
    """Returns a description of this machine's devices, and the matrix-product throughput of one device."""
    number, name = _devices()
    return f"{number} x {name}" if number else name, update_stored_rate(study_dir, name, _multiply)


def _devices() -> tuple[int, str]:
    """Returns the number of GPUs and the name of the first; without GPUs, 0 and the name of the processor."""
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    return len(gpus), gpus[0].get("device_name", "GPU") if gpus else processor()


def matrix_flops_per_second(dtype: str = "float32") -> tuple[str, float]:
    """Returns a description of this machine's devices, and their total matrix-product throughput.

    The CPU's cores are divided as in training.
    """
    number, name = _devices()
    _share_out_cores()
    rate = matrix_rate(functools.partial(_multiply, dtype=dtype))["flops_per_second"]
    return (f"{number} x {name}", number * rate) if number else (name, rate)


def _multiply(size: int, dtype: str = "float32") -> float:
    """Returns the seconds of a matrix product on the first GPU, or on all cores.

    Each of the streams that share the cores runs ten products, so that the overhead of the call is small.
    """
    products, streams = _products(size, dtype), range(num_streams())
    start = time.perf_counter()
    list(map_in_parallel(lambda _: products().numpy(), streams))
    return (time.perf_counter() - start) / 10 / len(streams)


@functools.cache
def _products(size: int, dtype: str) -> Callable[[], tf.Tensor]:
    """Returns a traced function that computes ten successive matrix products."""
    matrix = tf.cast(tf.random.uniform([size, size]), dtype)

    @tf.function
    def products() -> tf.Tensor:
        product = matrix
        for _ in range(10):
            product = tf.matmul(matrix, product) / size
        return tf.reduce_sum(tf.cast(product, tf.float32))

    products()
    return products


def _share_out_cores() -> None:
    if not tf.config.list_physical_devices("GPU"):
        share_out_cores()


_lock = functools.partial(locked, verb="evaluate", participle="worked on", flag="--study_dir")


def _num_needed(train: TrainConfig) -> int:
    """Returns how many of the newest regularly saved checkpoints an average may need.

    With patience, those around the best checkpoint are needed, after which training continued for `train.patience`
    validations.
    """
    updates = train.patience * (train.validation_steps or train.checkpoint_steps)
    return train.keep_checkpoints + -(-updates // train.checkpoint_steps)


def _average(run: Run, config: Config, name: str) -> int:
    """Averages regularly saved checkpoints, not those saved on signals, and returns the step of the best one.

    Averages the newest checkpoints, or those around the best one if `train.patience` is set.
    """
    steps, train = checkpoints.steps(run.checkpoints_path), config.train
    best = checkpoints.best(run.checkpoints_path)
    best_step = best.step if best else steps[-1]
    if not train.checkpoint_minutes:
        oldest = steps[-1] - _num_needed(train) * train.checkpoint_steps  # the best one may be older
        regular_steps = (step for step in steps if step % train.checkpoint_steps == 0 and step > oldest)
        steps = [*(step for step in regular_steps if step < steps[-1]), steps[-1]]
    # Takes as many checkpoints before the middle as after it, if there are enough.
    num_earlier = sum(step < (best_step if train.patience else steps[-1]) for step in steps)
    first = max(0, min(num_earlier - train.keep_checkpoints // 2, len(steps) - train.keep_checkpoints))
    window = steps[first : first + train.keep_checkpoints]
    paths = [run.checkpoints_path / checkpoints.step_name(step) for step in window]
    members = [checkpoints.load(path, weights_only=True) for path in paths]
    averaging.save(run, members, name)
    return best_step


def _evaluate(translator: Translator, data: PreparedData, folder: pathlib.Path) -> dict[str, Any]:
    """Translates and scores the validation and test sets, and writes both evaluations to `folder`/evaluation.

    Returns:
        "SPLIT_bleu", "SPLIT_bleu_tokenised_lowercased", "SPLIT_f1" and so on: scores of the task for each split that
            exists. BLEU is computed by sacreBLEU.
        "pooled_bleu" and so on: first score of the task for both splits as one corpus.
        "valid_perplexity": perplexity per token on the validation set.
        "valid_nats_per_sentence": cross-entropy per line of the validation set, which does not depend on the tokens.
        "output_tokens_per_second": translation speed on the last split.
        "bleu_signature": sacreBLEU's signature, for translation only.
        "date", "versions": date of the evaluation and versions of the software.
    """
    results: dict[str, Any] = {}
    pooled: tuple[list[str], list[str]] = ([], [])  # hypotheses and references
    for split in (name for name in ("valid", "test") if name in data.splits):
        sources, references = data.text(split)
        language = language_of(references, data.config.target_language)
        outcome = evaluation.evaluate(translator, sources, references, ScoringSettings(language, lowercase=True))
        pooled[0].extend(outcome.hypotheses)
        pooled[1].extend(references)
        settings = {"data_split": split, "target_language": language}
        evaluation.write_evaluation(folder / "evaluation" / split, outcome, settings)
        results |= {_key(split, score): score.value for score in outcome.scores}
        if split == "valid":
            cross_entropy = evaluation.target_cross_entropy(translator, sources, references)
            results["valid_perplexity"] = evaluation.perplexity(cross_entropy)
            results["valid_nats_per_sentence"] = cross_entropy[0] / len(sources)
        results["output_tokens_per_second"] = outcome.tokens_per_second
    language = language_of(pooled[1], data.config.target_language)
    first, *_ = translator.task.scores(*pooled, ScoringSettings(language))
    results[_key("pooled", first)] = first.value
    if first.name == "BLEU":
        results["bleu_signature"] = first.signature
    now = datetime.datetime.now(datetime.UTC)
    return {**results, "date": now.date().isoformat(), "versions": _versions()}


def _key(split: str, score: Score) -> str:
    """Returns the name of a result, such as "valid_exact_match" for the score "exact match"."""
    return f"{split}_{score.name.lower().replace(' ', '_')}"


def _versions() -> str:
    packages = {"TensorFlow": tf, "Keras": keras, "sacreBLEU": sacrebleu}
    versions = [f"{name} {package.__version__}" for name, package in packages.items()]
    with contextlib.suppress(metadata.PackageNotFoundError):  # in a source checkout that is not installed
        versions.insert(0, f"t2t_keras {metadata.version('t2t_keras')}")
    return ", ".join([*versions, f"Python {platform.python_version()}"])
