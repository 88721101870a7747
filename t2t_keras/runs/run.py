"""A run's directory: where its config, vocabulary, checkpoints and logs are.

    config.json    the resolved configuration, and where the data was
    vocab.model    the SentencePiece model
    checkpoints/   step_00001000/ ..., best, averaged_...
    tensorboard/   scalars
    metrics.jsonl  one JSON object a line
    curves.png     the same as a picture
    micro_batch.json  how much of a batch fits on a device, if that was searched for
    .lock          held by the process that trains the run

It is all that translating needs. An exported model (`t2t_keras.export`) holds as much, in other places, and
is read like a run; it cannot be trained.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_keras.config import Config, differences
from t2t_keras.errors import InputError
from t2t_keras.machine.locking import locked
from t2t_keras.runs.exported import exported_version

# What may change between two starts of one run, beside all of decoding: how long and how it is watched, not what it
# computes.
RESUMABLE = {
    "train.max_steps",
    "train.max_minutes",
    "train.log_steps",
    "train.checkpoint_steps",
    "train.checkpoint_minutes",
    "train.keep_checkpoints",
    "train.validation_steps",
    "train.validation_sentences",
    "train.patience",
    "train.steps_per_call",
    "train.accumulation_steps",
    "train.deterministic",
}


# What config.json says beside the configuration: of a run, and of an export.
_DATA_DIR = "data_dir"
_EXPORT = "export"


class Run:
    """The paths of one run, or of an exported model.

    Args:
        model_dir: the run's directory; of an export its version's or the one above, which means its newest version.

    Attributes:
        exported: the directory of the export's version; None if this is a run.
    """

    def __init__(self, model_dir: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(model_dir)
        self.exported = exported_version(self.path)
        self.config_path = self.path / "config.json"
        self.vocab_path = self.path / "vocab.model"
        if self.exported:
            self.config_path = self.exported / "assets.extra" / "config.json"
            self.vocab_path = self.exported / "assets" / "vocab.model"
        self.checkpoints_path = self.path / "checkpoints"
        self.tensorboard_path = self.path / "tensorboard"
        self.metrics_path = self.path / "metrics.jsonl"
        self.micro_batch_path = self.path / "micro_batch.json"
        self.curves_path = self.path / "curves.png"

    @property
    def exists(self) -> bool:
        """Whether a configuration has been written there."""
        return self.config_path.is_file()

    @property
    def config(self) -> Config:
        """The run's configuration.

        Raises:
            InputError: there is none, or it does not parse.
        """
        values = {name: value for name, value in self._read().items() if name not in (_DATA_DIR, _EXPORT)}
        try:
            return Config.from_dict(values)
        except InputError as error:
            raise InputError(f"{self.config_path}: {error}") from None

    @property
    def excluded(self) -> tuple[str, ...]:
        """The words and phrases that no translation of an exported model may contain; none of a run."""
        return tuple(self._read().get(_EXPORT, {}).get("excluded", ()))

    @property
    def data_dir(self) -> pathlib.Path:
        """Where the run's prepared data was when it was last trained."""
        values = self._read()
        if _DATA_DIR not in values:
            raise InputError(f"{self.config_path} does not say where the data was")
        return pathlib.Path(values[_DATA_DIR])

    def check_trainable(self) -> None:
        """Makes sure that the directory is free for a run or holds one; changes nothing in it.

        Raises:
            InputError: it holds an exported model, or a config.json that is not a run's.
        """
        if self.exported:
            raise InputError(f"{self.path} holds an exported model, which cannot be trained; use another --model_dir")
        if self.exists:
            values = self._read()
            if _DATA_DIR not in values or _EXPORT in values:
                raise InputError(f"{self.config_path} is not that of a training; use another --model_dir")
            _ = self.config  # raises if it is not one

    def forget(self) -> None:
        """Removes configuration and vocabulary, for a run of which nothing was saved yet to begin anew.

        Only for whoever holds the lock.

        Raises:
            InputError: as `check_trainable`.
        """
        self.check_trainable()
        if self.exists:
            self.vocab_path.unlink(missing_ok=True)
            self.config_path.unlink()  # last: it is what tells that the vocabulary is the run's

    def start(self, config: Config, data_dir: str | os.PathLike[str], vocab_path: str | os.PathLike[str]) -> None:
        """Writes the configuration and the vocabulary, or checks that they are what the run began with.

        Args:
            config: the resolved configuration.
            data_dir: where the prepared data is.
            vocab_path: the SentencePiece model to copy.

        Raises:
            InputError: the run exists with another configuration (names what differs) or with another vocabulary, or
                the directory holds something else than a run.
        """
        self.check_trainable()
        vocab = pathlib.Path(vocab_path).read_bytes()
        if self.exists:
            if changed := lasting_differences(self.config, config):
                raise InputError(
                    f"{self.path} holds a run with another configuration ({'; '.join(changed)}); "
                    "use another --model_dir or the old settings"
                )
            if self.vocab_path.read_bytes() != vocab:
                raise InputError(f"{self.path} holds a run with another vocabulary than {vocab_path}")
        elif self.vocab_path.exists() and self.vocab_path.read_bytes() != vocab:
            raise InputError(f"{self.vocab_path} is there without a run; use another --model_dir")
        self.path.mkdir(parents=True, exist_ok=True)
        # The configuration first: it is what tells that the directory is a run's.
        values = {**config.to_dict(), _DATA_DIR: os.path.abspath(data_dir)}
        _write(self.config_path, (json.dumps(values, indent=2) + "\n").encode("utf-8"))
        _write(self.vocab_path, vocab)

    @property
    def micro_batch(self) -> dict[str, Any]:
        """What `note_micro_batch` wrote; empty if nothing is known."""
        try:
            return json.loads(self.micro_batch_path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # it can be found out again
            return {}

    def note_micro_batch(self, note: Mapping[str, Any]) -> None:
        """Keeps what was found out about how much of a batch fits on a device."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.micro_batch_path, (json.dumps(note, indent=2) + "\n").encode("utf-8"))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps every other training out of the directory, which is made if missing, as long as the context lasts.

        Raises:
            InputError: another process trains the run, and goes on doing so for some seconds; or nothing can be
                written there.
        """
        return locked(self.path, verb="train", participle="trained", flag="--model_dir")

    def remove_leftovers(self) -> None:
        """Removes the temporary files of a process that was killed; only for whoever holds the lock."""
        for path in (self.config_path, self.vocab_path, self.metrics_path, self.micro_batch_path, self.curves_path):
            for leftover in (*self.path.glob(f".{path.name}.tmp"), *self.path.glob(f".{path.name}.*.tmp")):
                leftover.unlink()

    def _read(self) -> dict:
        if not self.exists:
            raise InputError(f"{self.path} is not a run's directory: it has no config.json")
        try:
            values = json.loads(self.config_path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config_path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"{self.config_path} holds no configuration but {type(values).__name__}")
        return values


def _write(path: pathlib.Path, contents: bytes) -> None:
    """Puts a file in place whole, unless it is there already."""
    if path.exists() and path.read_bytes() == contents:
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def lasting_differences(old: Config, new: Config) -> list[str]:
    """What tells two configurations apart that can not be of one run, as "section.field: old -> new"."""
    changed = {difference.partition(":")[0]: difference for difference in differences(old, new)}
    return [d for name, d in changed.items() if name not in RESUMABLE and not name.startswith("decode.")]
