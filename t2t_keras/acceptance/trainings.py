"""The training runs of the acceptance checks: processes of `launch.train`, with made-up text."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import Record, read_metrics
from t2t_keras.runs.run import Run

_PAIRS, _VALIDATION_PAIRS = 10_000, 20
_VOCAB_SIZE = 4000
# Nearly equal lengths need few batch shapes, each of which XLA compiles.
_WORDS_PER_SENTENCE = (18, 22)
# Metrics of each update, and no translations. During the preset's warm-up, a few updates would hardly change the
# weights, and the effect of an error would be small.
_SETTINGS: dict[str, Any] = {
    "train.log_steps": 1,
    "train.warmup_steps": 100,
    "train.tokens_per_batch": 2000,
    "train.static_shapes": True,
    "train.best_metric": "loss",
    "train.validation_sentences": 0,
    "train.keep_checkpoints": 100,
}

# Settings that the checks choose or rely on, and that the user therefore cannot override.
DETERMINED = (
    *("train.log_steps", "train.max_steps", "train.max_minutes", "train.keep_checkpoints"),
    *("train.checkpoint_steps", "train.checkpoint_minutes", "train.checkpoint_epochs", "train.validation_steps"),
)


class TrainingFailedError(Exception):
    """A training process ended with an error; the message contains the last line of its log."""


@dataclasses.dataclass(frozen=True)
class Training:
    """A training run in a separate process.

    Attributes:
        process: the process.
        run: the run that it trains.
        log_path: file with its standard error.
    """

    process: subprocess.Popen
    run: Run
    log_path: pathlib.Path

    def finish(self) -> None:
        """Waits for the end of the process; raises a `TrainingFailedError` if it ends with an error."""
        if status := self.process.wait():
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "it printed no error")
            raise TrainingFailedError(f"launch.train ended with {status}: {last}")

    @property
    def records(self) -> list[Record]:
        """The metrics of all updates so far."""
        return [record for record in read_metrics(self.run.metrics_path) if record["kind"] == "train"]

    @property
    def saved_steps(self) -> list[int]:
        """The steps of the checkpoints so far."""
        return checkpoints.steps(self.run.checkpoints_path) if self.run.checkpoints_path.exists() else []

    @property
    def devices(self) -> str:
        """The devices as the process reports them, such as "2 replicas on CPU"."""
        reported = re.findall(r" on (.+); tracing", self.log_path.read_text(encoding="utf-8", errors="replace"))
        return reported[-1] if reported else "unknown devices"


class Trainer:
    """Starts training runs on made-up text.

    Args:
        folder: folder for text and runs.
        command: the command that starts `launch.train`.
        settings: settings of all runs, each "section.field=value"; they override those of the checks.
    """

    def __init__(self, folder: pathlib.Path, command: Sequence[str], settings: Sequence[str] = ()) -> None:
        self._folder, self._command, self._settings = folder, command, settings
        config = DataConfig(vocab_size=_VOCAB_SIZE)
        self.data: PreparedData = prepare(_made_text(), config, folder / "data", report=lambda line: None)

    def path(self, name: str) -> pathlib.Path:
        """Returns the folder of a run."""
        return self._folder / name

    @contextlib.contextmanager
    def started(
        self,
        name: str,
        preset: str,
        flags: Sequence[str],
        settings: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Training]:
        """Starts or resumes a run; returns a context that ends the process.

        Args:
            name: name of the run.
            preset: sizes and recipe.
            flags: flags of the devices.
            settings: settings that differ from those of the checks.
            environment: additional variables.
        """
        run, log_path = Run(self.path(name)), self._folder / f"{name}.log"
        merged = [f"{key}={value}" for key, value in {**_SETTINGS, **settings}.items()]
        places = [f"--data_dir={self.data.directory}", f"--model_dir={run.path}", f"--preset={preset}"]
        all_settings = [f"--set={setting}" for setting in (*merged, *self._settings)]
        with open(log_path, "ab") as log:
            process = subprocess.Popen(
                [*self._command, *places, *flags, *all_settings],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        try:
            yield Training(process, run, log_path)
        finally:
            process.kill()
            process.wait()


def _made_text() -> Corpus:
    """Returns made-up sentences; their translations are the words in reverse order, each one spelled backwards."""
    return Corpus(
        {
            "train": lambda: _pairs(seed=1, count=_PAIRS),
            "valid": lambda: _pairs(seed=2, count=_VALIDATION_PAIRS),
        }
    )


def _pairs(seed: int, count: int) -> Iterator[tuple[str, str]]:
    syllables = [f"{consonant}{vowel}" for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words = ["".join(parts) for parts in itertools.product(syllables, repeat=2)]
    weights = [1 / (rank + 10) for rank in range(len(words))]  # a few words are frequent, as in real text
    draw = random.Random(seed)
    for _ in range(count):
        sentence = draw.choices(words, weights, k=draw.randint(*_WORDS_PER_SENTENCE))
        yield " ".join(sentence), " ".join(word[::-1] for word in reversed(sentence))
