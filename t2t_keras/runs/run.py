"""The directory of a run: configuration, vocabulary, checkpoints and logs.

    config.json       resolved configuration, directory of the data, fingerprint of the training text, and origin of
                      the initial weights
    vocab.model       SentencePiece model; also vocab.source.model if sources have a separate vocabulary, and
                      truecase.txt if the targets are truecased
    characters.json   the characters of the training text
    checkpoints/      step_00001000/ ..., averaged_...
    tensorboard/      scalars
    metrics.jsonl     one JSON object per line
    curves.svg        plots of these metrics
    .lock             held by the process that trains the run

Translation needs no other files. An exported model (`t2t_keras.export`) arranges its configuration, vocabulary and
weights differently; it can be read like a run, but not trained.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_keras.config import Config, DecodeConfig, differences
from t2t_keras.errors import InputError, named
from t2t_keras.export_contract import CONFIG_FILE, VOCABULARY_FILE, WEIGHTS
from t2t_keras.machine import remote
from t2t_keras.machine.files import local_path, replacing
from t2t_keras.machine.locking import locked
from t2t_keras.runs import checkpoints
from t2t_keras.runs.exported import exported_version
from t2t_keras.text.tokenizer import vocabulary_files

# Besides the decoding settings, these may change when a run resumes: they decide how long a run trains and how it is
# monitored, not what it computes.
RESUMABLE = {
    "train.max_steps",
    "train.max_minutes",
    "train.decay_steps",
    "train.log_steps",
    "train.checkpoint_steps",
    "train.checkpoint_minutes",
    "train.checkpoint_epochs",
    "train.keep_checkpoints",
    "train.validation_steps",
    "train.validation_sentences",
    "train.patience",
    "train.steps_per_call",
    "train.accumulation_steps",
    "train.deterministic",
}

# Keys of config.json besides the configuration, in runs and exports.
_DATA_DIR = "data_dir"
_TEXT = "training_text"
_INIT_FROM = "init_from"
_EXPORT = "export"
IMPORTED = "imported"
_NOTES = (_DATA_DIR, _TEXT, _INIT_FROM, _EXPORT, IMPORTED)


class Run:
    """The paths of a run or of an exported model.

    Args:
        model_dir: directory of a run, of an export's version, or of an export (its newest version is used).

    Attributes:
        exported: directory of the export's version; None for a run.
    """

    def __init__(self, model_dir: str | os.PathLike[str]) -> None:
        self.path = local_path(model_dir, "model_dir")
        self.exported = exported_version(self.path)
        self.config_path = self.path / "config.json"
        self.vocab_path = self.path / "vocab.model"
        if self.exported:
            self.config_path = self.exported / CONFIG_FILE
            self.vocab_path = self.exported / VOCABULARY_FILE
        self.checkpoints_path = self.path / "checkpoints"
        self.tensorboard_path = self.path / "tensorboard"
        self.metrics_path = self.path / "metrics.jsonl"
        self.curves_path = self.path / "curves.svg"

    @property
    def exists(self) -> bool:
        """Whether the directory has a configuration."""
        return self.config_path.is_file()

    @property
    def config(self) -> Config:
        """The run's configuration; raises an InputError if it is missing or invalid."""
        return self._parse(_NOTES)

    @property
    def config_without_model(self) -> Config:
        """Like `config`, but with the default model settings, so that the model's family need not be registered."""
        return self._parse({*_NOTES, "model"})

    def _parse(self, ignored: Collection[str]) -> Config:
        values = {name: value for name, value in self._read().items() if name not in ignored}
        with named(self.config_path):
            return Config.from_dict(values)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The excluded words and phrases of an exported model; empty for a run."""
        return tuple(self._read().get(_EXPORT, {}).get("excluded", ()))

    @property
    def data_dir(self) -> pathlib.Path:
        """The directory of the prepared data on which the run was last trained; fetched if it is in object storage.

        Raises:
            InputError: the directory is not recorded, or does not exist any more.
        """
        values = self._read()
        if _DATA_DIR not in values:
            raise InputError(f"{self.config_path} does not record the directory of the data; give --data_dir")
        data_dir = pathlib.Path(remote.local(values[_DATA_DIR]))
        if not data_dir.exists():
            raise InputError(f"{data_dir}: the data that {self.path} was trained on are missing; give --data_dir")
        return data_dir

    @property
    def init_from(self) -> dict[str, Any]:
        """The origin of the initial weights as recorded by `start`; empty if they were random."""
        return self._read().get(_INIT_FROM, {})

    def check_trainable(self) -> None:
        """Raises an InputError if the directory has an exported model or an unrelated config.json."""
        if self.exported:
            raise InputError(
                f"{self.path} holds an exported model, which cannot be trained; use a different --model_dir"
            )
        if self.exists:
            values = self._read()
            if _DATA_DIR not in values or _EXPORT in values:
                raise InputError(f"{self.config_path} does not belong to a training; use a different --model_dir")
            _ = self.config  # raises if it is invalid

    def forget(self) -> None:
        """Removes configuration and vocabulary, so that a run without checkpoints can start again.

        The caller must hold the lock. Raises the errors of `check_trainable`.
        """
        self.check_trainable()
        if self.exists:
            for path in vocabulary_files(self.vocab_path):
                path.unlink(missing_ok=True)
            self.config_path.unlink()  # last, because it shows that the vocabulary belongs to a run

    def start(
        self,
        config: Config,
        data_dir: str | os.PathLike[str],
        vocab_path: str | os.PathLike[str],
        init_from: Mapping[str, Any] | None = None,
        text: str | None = None,
    ) -> None:
        """Writes the configuration and copies the vocabulary. For an existing run, first checks that they match.

        Args:
            config: resolved configuration.
            data_dir: directory of the prepared data.
            vocab_path: SentencePiece model to copy.
            init_from: origin of a new run's initial weights, as JSON values; ignored for an existing run.
            text: fingerprint of the training text, independent of its location; compared if the run has recorded one.

        Raises:
            InputError: as `check_trainable`, or the configuration (names the differences), the vocabulary or the
                training text differs from the run's.
        """
        self.check_trainable()
        vocab = vocabulary_bytes(vocab_path)
        if self.exists:
            init_from = self.init_from
            if changed := lasting_differences(self.config, config):
                raise InputError(
                    f"{self.path} holds a run with a different configuration ({'; '.join(changed)}); "
                    "use a different --model_dir or the old settings"
                )
            if not _is_same_vocabulary(vocabulary_bytes(self.vocab_path), vocab):
                raise InputError(f"{self.path} holds a run with a different vocabulary than {vocab_path}")
            values = self._read()
            old_text = values.get(_TEXT)  # runs of earlier versions have none
            if text and old_text and not text.startswith(old_text):  # earlier versions recorded only the lengths
                raise InputError(
                    f"{self.path} was trained on {values[_DATA_DIR]} with {old_text}, but {data_dir} has {text}; use "
                    "a different --model_dir, perhaps with --init_from, or the old data"
                )
            text = text or old_text
        elif self.vocab_path.exists() and not _is_same_vocabulary(vocabulary_bytes(self.vocab_path), vocab):
            raise InputError(f"{self.vocab_path} exists without a run; use a different --model_dir")
        self.path.mkdir(parents=True, exist_ok=True)
        # The configuration first, because it marks the directory as a run.
        values = {**config.to_dict(), _DATA_DIR: remote.origin(data_dir)}
        if text:
            values[_TEXT] = text
        if init_from:
            values[_INIT_FROM] = dict(init_from)
        _write(self.config_path, (json.dumps(values, indent=2) + "\n").encode("utf-8"))
        for path, contents in zip(vocabulary_files(self.vocab_path), vocab, strict=True):
            if contents is not None:
                _write(path, contents)

    def store_decoding(self, decode: DecodeConfig) -> None:
        """Stores new decoding settings, which programs then use by default. The caller must hold the lock."""
        values = {**self._read(), **dataclasses.replace(self.config, decode=decode).to_dict()}
        _write(self.config_path, (json.dumps(values, indent=2) + "\n").encode("utf-8"))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that keeps other training processes out of the directory; see `machine.locking.locked`."""
        return locked(self.path, verb="train", participle="trained", flag="--model_dir")

    def remove_leftovers(self) -> None:
        """Removes the temporary files of a killed process; the caller must hold the lock."""
        for path in (self.config_path, *vocabulary_files(self.vocab_path), self.metrics_path, self.curves_path):
            for leftover in self.path.glob(f".{path.name}.*.tmp"):
                leftover.unlink()

    def _read(self) -> dict:
        """Reads config.json; raises an InputError if it is missing or is not the configuration of a run."""
        if not self.exists:
            for inner in self.path.glob("run/config.json"):  # the folder of a fit
                raise InputError(f"{self.path} is not a run's directory, but contains one: give {inner.parent}")
            raise InputError(f"{self.path} is not a run's directory: it has no config.json")
        try:
            values = json.loads(self.config_path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config_path} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"{self.config_path} must contain a configuration, but contains {type(values).__name__}")
        if "model_type" in values:
            raise InputError(
                f"{self.config_path} belongs to a model of transformers, not to a run; to make a run of it, use "
                "launch.convert --from=huggingface"
            )
        return values


class RunCheckpoint(NamedTuple):
    """A run and the name of one of its checkpoints.

    Attributes:
        model_dir: directory of a run or of an export.
        checkpoint: "latest", "best", a step or any other name that `checkpoints.resolve` accepts; None for an export.
    """

    model_dir: str | os.PathLike[str]
    checkpoint: str | None = None

    @classmethod
    def parse(cls, text: str) -> "RunCheckpoint":
        """Parses "MODEL_DIR" or "MODEL_DIR@CHECKPOINT"; an existing directory named `text` takes precedence.

        Raises:
            InputError: the text or one of its parts is empty.
        """
        if text and ("@" not in text or os.path.isdir(text)):
            return cls(text)
        model_dir, _, checkpoint = text.rpartition("@")
        if not model_dir or not checkpoint:
            raise InputError(f"{text!r} does not name a run: expected MODEL_DIR or MODEL_DIR@CHECKPOINT")
        return cls(model_dir, checkpoint)


def weights_path(run: Run, checkpoint: str | None = None) -> pathlib.Path:
    """Returns the directory of a run's checkpoint, or of an export's version, for `load_weights`.

    Raises:
        InputError: the checkpoint does not exist (lists the existing ones), or a checkpoint is given for an export.
    """
    if not run.exported:
        return checkpoints.resolve(run.checkpoints_path, checkpoint)
    if checkpoint is not None:
        raise InputError(f"{run.path} is an exported model: it has no checkpoint {checkpoint!r} to choose")
    return run.exported


def weights_file(path: pathlib.Path) -> pathlib.Path:
    """Returns the file with the weights that `load_weights` reads, given a path from `weights_path`."""
    names = (f"{WEIGHTS}.data-00000-of-00001", "ema.npz")
    return next((path / name for name in names if (path / name).exists()), path / "weights.npz")


def vocabulary_bytes(path: str | os.PathLike[str]) -> list[bytes | None]:
    """Reads the `vocabulary_files` of a path; None in place of a file that does not exist and need not."""
    vocabulary, *rest = vocabulary_files(pathlib.Path(path))
    return [vocabulary.read_bytes(), *(file.read_bytes() if file.exists() else None for file in rest)]


def _is_same_vocabulary(one: Sequence[bytes | None], other: Sequence[bytes | None]) -> bool:
    """Compares the results of `vocabulary_bytes`, except for the characters, which earlier versions did not record."""
    return one[:-1] == other[:-1]


def _write(path: pathlib.Path, contents: bytes) -> None:
    """Writes a file atomically, unless it already has these contents."""
    if path.exists() and path.read_bytes() == contents:
        return
    with replacing(path, "wb") as file:
        file.write(contents)


def lasting_differences(old: Config, new: Config) -> list[str]:
    """Returns the differences that prevent resuming, as "section.field: old -> new"."""
    changed = {difference.partition(":")[0]: difference for difference in differences(old, new)}
    return [d for name, d in changed.items() if name not in RESUMABLE and not name.startswith("decode.")]


def scores_differ(old: Config, new: Config) -> bool:
    """Returns whether validation scores are not comparable, because sentences or decoding settings differ."""
    changed = {difference.partition(":")[0] for difference in differences(old, new)}
    return any(name == "train.validation_sentences" or name.startswith("decode.") for name in changed)
