"""Trainings that take seconds: an artificial language of syllables, a model of one layer, a `Trainer`."""

import dataclasses
import math
import os
import pathlib
import random
import signal
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, DecodeConfig, TrainConfig, TransformerConfig
from t2t_keras.config.data_config import VocabType
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.training.backends import make_devices
from t2t_keras.training.monitor import Monitor
from t2t_keras.training.trainer import Outcome, Trainer

# Byte fallback takes 256 entries and the special symbols 3; the rest suffices for every syllable.
VOCAB_SIZE = 300
SYLLABLES = [consonant + vowel for consonant in "bdfgk" for vowel in "aeo"]
MODEL: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
TRAIN: dict[str, Any] = {
    "tokens_per_batch": 100,
    "max_steps": 12,
    "warmup_steps": 20,
    "log_steps": 1,
    "checkpoint_steps": 4,
    "keep_checkpoints": 20,
    "steps_per_call": 3,
}
# The measured times in a line of metrics, which always differ.
TIMES = ("seconds", "processor_seconds", "steps_per_second", "tokens_per_second")


def sentences(count: int, longest: int = 6, seed: int = 1) -> list[str]:
    """Returns different sentences of 2 to `longest` syllables."""
    generator = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(generator.choices(SYLLABLES, k=generator.randint(2, longest)))] = None
    return list(texts)


def reverse(sentence: str) -> str:
    return " ".join(reversed(sentence.split()))


def copy(sentence: str) -> str:
    # Cleaning drops pairs of identical sides.
    return f"{sentence} !"


def make_data(
    folder: pathlib.Path,
    task: Any = reverse,
    train_pairs: int = 150,
    valid_pairs: int = 20,
    longest: int = 6,
    vocab_type: VocabType = "bpe",
) -> PreparedData:
    """Writes text files, and prepares them in `folder`/data."""
    texts = sentences(train_pairs + valid_pairs, longest)
    paths = {}
    for split, part in (("valid", texts[:valid_pairs]), ("train", texts[valid_pairs:])):
        paths[split] = (folder / f"{split}.source", folder / f"{split}.target")
        paths[split][0].write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
        paths[split][1].write_text("".join(f"{task(line)}\n" for line in part), encoding="utf-8")
    config = DataConfig(vocab_type=vocab_type, vocab_size=VOCAB_SIZE)
    return prepare(corpora.files(paths), config, folder / "data", report=lambda line: None)


def make_config(data: PreparedData, model: dict[str, Any] | None = None, **train: Any) -> Config:
    """Returns a tiny configuration with some changes."""
    return Config(
        model=TransformerConfig(vocab_size=data.tokenizer.vocab_size, **{**MODEL, **(model or {})}),
        data=data.config,
        train=TrainConfig(**{**TRAIN, **train}),
        decode=DecodeConfig(beam_size=1, max_length_offset=4),
    )


def launch_flags(model_dir: pathlib.Path | str, data: PreparedData, **settings: Any) -> list[str]:
    """Returns the flags of launch.train for a run in `model_dir` with all settings of `make_config`."""
    config = make_config(data, **settings).to_dict()
    del config["model"]["vocab_size"], config["data"]
    fields = [(section, name, value) for section, values in config.items() for name, value in values.items()]
    settings_with_values = [(section, name, value) for section, name, value in fields if value is not None]
    texts = [",".join(value) if isinstance(value, list | tuple) else value for _, _, value in settings_with_values]
    sets = [
        f"--set={section}.{name}={text}" for (section, name, _), text in zip(settings_with_values, texts, strict=True)
    ]
    return [f"--data_dir={data.directory}", f"--model_dir={model_dir}", "--preset=base", *sets]


def make_trainer(
    model_dir: pathlib.Path,
    data: PreparedData,
    model: dict[str, Any] | None = None,
    replicas: int = 1,
    model_parallel: int = 1,
    **train: Any,
) -> Trainer:
    """Returns a trainer of the run in `model_dir`."""
    devices = make_devices("cpu", replicas, model_parallel=model_parallel)
    return Trainer(Run(model_dir), make_config(data, model, **train), data, devices)


def train(model_dir: pathlib.Path, data: PreparedData, **settings: Any) -> Outcome:
    """Trains with the settings of `make_trainer`."""
    return make_trainer(model_dir, data, **settings).train()


def records(model_dir: pathlib.Path, kind: str) -> list[dict[str, Any]]:
    """Returns the lines of metrics of one kind, without measured times."""
    lines = read_metrics(Run(model_dir).metrics_path)
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines if line["kind"] == kind]


def assert_same_numbers(model_dir: pathlib.Path, expected_dir: pathlib.Path, tolerance: float = 1e-5) -> None:
    """Asserts that two runs have the same metrics, up to rounding, to which norms of gradients are most sensitive."""
    for kind in ("train", "valid"):
        lines, expected = records(model_dir, kind), records(expected_dir, kind)
        assert [line["step"] for line in lines] == [line["step"] for line in expected]
        assert expected
        for line, expected_line in zip(lines, expected, strict=True):
            assert line.keys() == expected_line.keys()
            for name, number in expected_line.items():
                allowed = 10 * tolerance if name == "gradient_norm" else tolerance
                is_same = line[name] == number or math.isclose(line[name], number, rel_tol=allowed)
                assert is_same, f"{kind} step {line['step']}: {name} is {line[name]}, not {number}"


def state(model_dir: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Returns all arrays of a checkpoint."""
    saved = checkpoints.load(Run(model_dir).checkpoints_path / checkpoints.step_name(step))
    parts = {"weights": saved.weights, "optimizer": saved.optimizer, "ema": saved.ema or {}}
    return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def assert_same_end(model_dir: pathlib.Path, expected_dir: pathlib.Path, step: int) -> None:
    """Asserts that two runs have the same checkpoint of a step, bit for bit, and the same metrics, each step once."""
    actual, expected = state(model_dir, step), state(expected_dir, step)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    assert records(model_dir, "train") == records(expected_dir, "train")


def saved_steps(model_dir: pathlib.Path) -> list[int]:
    """Returns the steps of a run's checkpoints."""
    return checkpoints.steps(Run(model_dir).checkpoints_path)


def send_at(monkeypatch, number: signal.Signals, *steps: int) -> None:
    """Sends the process the signal when training reaches each of these steps."""
    progress = Monitor.progress

    def sending(self, step, expected_steps):
        progress(self, step, expected_steps)
        if step in steps:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Monitor, "progress", sending)


def best_step(model_dir: pathlib.Path) -> int:
    best = checkpoints.best(Run(model_dir).checkpoints_path)
    assert best
    return best.step


def resume(run: Run, data: PreparedData, max_steps: int, devices: Any, **train: Any) -> None:
    """Resumes a run up to a later step, with its own or changed settings."""
    config = run.config
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=max_steps, **train))
    assert Trainer(run, config, data, devices).train().step == max_steps
