"""The steps from parallel text to an exported model; a completed step is not repeated."""

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from t2t_keras import config as configuration
from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.data.checksums import checksums
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.export_contract import CONFIG_FILE
from t2t_keras.fitting.fit_record import FitRecord
from t2t_keras.machine.notices import without_notices
from t2t_keras.machine.processor import computes_in_bfloat16
from t2t_keras.models import presets
from t2t_keras.planning import fit_rules
from t2t_keras.planning.fit_rules import FEWEST_UPDATES, GIVEN, NO_LIMIT, UNIT_TOKENS, UNIT_VOCAB_SIZE, Choice
from t2t_keras.planning.forecast import update_flops
from t2t_keras.runs import averaging, checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.text.languages import language_of
from t2t_keras.text.tokenizer import VocabularySizeError
from t2t_keras.training.new_config import completed

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator
    from t2t_keras.models.contract import SequenceModel
    from t2t_keras.training.backends import Devices
    from t2t_keras.training.trainer import Outcome

CHOSEN = "chosen"  # name of the checkpoint whose weights are evaluated and exported

_MIN_SHARE = 0.5  # share of the minutes reserved for training, however long preparation took
_MIN_MINUTES = 0.01  # not 0, because train.max_minutes=0 means no limit
_DECAYING_SHARE = 5  # the learning rate decays to zero in the last fifth of the updates
_LENGTH_PENALTIES = (0.6, 1.0, 1.4)
_LOW_BLEU = 10  # of outputs that are mostly unrelated to their sources
_SENTENCE_TOKENS = 16  # for the cost of attention
_EXAMPLES = 5
_FEWEST_WORDS = 4  # in an example, because shorter sentences show little


class Places(NamedTuple):
    """The output directories: prepared data, the run (which includes the record), and the exported model."""

    data_dir: Path
    model_dir: Path
    export_dir: Path


@dataclasses.dataclass(frozen=True)
class _Weights:
    """Candidate weights, and their validation result.

    Attributes:
        name: description of the weights.
        steps: steps of the checkpoints that were averaged.
        arrays: the weights by name.
        value: value of `train.best_metric` on the validation set.
    """

    name: str
    steps: list[int]
    arrays: dict[str, Any]
    value: float


class FitSteps:
    """The steps of a fit. The methods are defined in the order in which they are called.

    Args:
        places: the output directories.
        say: called with lines of text.

    Attributes:
        record: choices and completed steps, stored in the run's directory.
        run: the run.
        data: the prepared data; set by `prepare`.
        translator: translates with the chosen weights and the chosen search; set by `choose_search`.

    Raises:
        InputError: the record is damaged.
    """

    data: PreparedData
    translator: "Translator"

    def __init__(self, places: Places, say: Callable[[str], None]) -> None:
        self.places, self._say = places, say
        self.record = FitRecord(places.model_dir / "fit.json")
        self.run = Run(places.model_dir)

    @property
    def choices(self) -> list[Choice]:
        """The choices that were recorded when the fit was started."""
        return [Choice(**values) for values in self.record["choices"] or []]

    def choice(self, name: str) -> Any:
        """Returns the value of a recorded choice.

        Raises:
            InputError: the fit was started by a version that did not make this choice.
        """
        for choice in self.choices:
            if choice.name == name:
                return choice.value
        raise InputError(
            f"{self.run.path} was started by a different version, which did not choose {name}; use a new folder"
        )

    @functools.cached_property
    def strategy(self) -> "Devices":
        """The devices to train on."""
        from t2t_keras.training.devices.strategy import make_strategy

        return make_strategy("auto")

    def choose(self, pairs: int, minutes: float, *, overrides: Sequence[Choice] = ()) -> list[Choice]:
        """Makes the choices by rules; those in `overrides` take precedence.

        The training speed of this machine is measured once and recorded.

        Args:
            pairs: number of training pairs.
            minutes: minutes of training.
            overrides: the user's choices.

        Raises:
            InputError: the choices are invalid or incompatible.
        """
        machine = this_machine()
        speed = self.record["updates_per_minute"]
        if speed is None:
            self._say("measuring the training speed of this machine")
            from t2t_keras.fitting.speed import updates_per_minute

            in_bfloat16 = machine["computes_in_bfloat16"] and not machine["has_accelerator"]
            speed = updates_per_minute(self.strategy, mixed_bfloat16=in_bfloat16)
            self.record.update(updates_per_minute=speed)
        choices = {each.name: each for each in fit_rules.choose(pairs, minutes, speed, **machine, overrides=overrides)}
        config = apply_choices(choices.values())
        if choices["preset"].value != "tiny":
            model = dataclasses.replace(config.model, vocab_size=int(choices["data.vocab_size"].value))
            cost = _relative_cost(dataclasses.replace(config, model=model), machine["has_accelerator"])
            max_steps = config.train.max_steps if "train.max_steps" in choices else NO_LIMIT
            choices["updates"] = fit_rules.limited_updates(minutes * speed / cost, max_steps)
        return list(choices.values())

    def check_text(self, corpus: Corpus) -> None:
        """Records the identity of the text; raises an InputError if the fit was started with different text."""
        files = checksums(corpus.files, self.places.data_dir / ".checksums.json")
        self.record.check_same("text", {**corpus.identity, **files}, self.places.model_dir)

    def prepare(self, corpus: Corpus, config: DataConfig, processes: int = 1) -> None:
        """Prepares the text with the chosen vocabulary size.

        If the text does not allow a size that a rule chose, a size that it does allow is recorded and used instead.
        Raises the errors of `t2t_keras.data.prepare.prepare`.
        """

        def run() -> PreparedData:
            data_config = dataclasses.replace(config, vocab_size=self.choice("data.vocab_size"))
            return prepare(corpus, data_config, self.places.data_dir, self._say, processes)

        with self.preparing():
            while True:
                try:
                    self.data = run()
                    break
                except VocabularySizeError as error:
                    choices = {choice.name: choice for choice in self.choices}
                    entry = choices["data.vocab_size"]
                    if entry.reason == GIVEN:
                        raise
                    size, reason = error.nearest, "the text allows no more entries"
                    if size > entry.value:
                        size, reason = size + entry.value, f"{size:,} for its characters, and the usual {entry.value:,}"
                    self._say(f"{error}; {size} is chosen")
                    choices["data.vocab_size"] = Choice("data.vocab_size", size, reason)
                    self.record.update(choices=[vars(choice) for choice in choices.values()])
        self.record.update(prepared=True)

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """A context whose duration counts as preparation time, unless the text was prepared before."""
        start = time.monotonic()
        try:
            yield
        finally:
            if not self.record["prepared"]:
                minutes = self.record["preparing_minutes"] or 0.0
                self.record.update(preparing_minutes=minutes + (time.monotonic() - start) / 60)

    def train(self, minutes: float, *, counts_preparing: bool) -> "Outcome | None":
        """Trains until the time limit, which covers all starts together.

        If the limit is too short for `FEWEST_UPDATES`, training continues until these are done. Raises the errors of
        `Trainer`.

        Args:
            minutes: time limit.
            counts_preparing: whether preparation time counts towards the limit. At least half of the limit remains for
                training.

        Returns:
            How training ended, or None if the time was used up before.
        """
        if (trained_minutes := self.record["trained_for"] or 0.0) >= minutes:
            self._say(
                f"{self.run.path} was trained for {trained_minutes:g} minutes before; to train longer, give a larger "
                "--minutes"
            )
            return None
        preparing = self.record["preparing_minutes"] if counts_preparing else 0.0
        limit = max(minutes - preparing, _MIN_SHARE * minutes)
        rest = max(limit - self.minutes_trained, _MIN_MINUTES)
        from t2t_keras.training.trainer import Trainer  # imports TensorFlow, which takes seconds

        trainer = Trainer(self.run, self._config(minutes, rest), self.data, self.strategy)
        outcome = trainer.train()
        interruption = "ended by Ctrl-C; to resume, give a larger --minutes"
        self._say(f"step {outcome.step:,}: {interruption if outcome.signal == signal.SIGINT else outcome.reason}")
        if outcome.signal in (0, signal.SIGINT):
            has_converged = outcome.reason.startswith("no better validation")
            later_steps = dict.fromkeys(("chosen", "search", "scores", "examples", "finished"))
            self.record.update(trained_for=minutes, has_converged=has_converged, **later_steps)
        return outcome

    @property
    def minutes_trained(self) -> float:
        """Training minutes according to the run's metrics, including those of a training that was killed."""
        records = read_metrics(self.run.metrics_path)
        return sum(record.get("seconds", 0.0) for record in records if record["kind"] == "train") / 60

    @property
    def suggested_minutes(self) -> float:
        """A value of --minutes with which training continues: twice the limit, or twice the time used if that is more.

        Training may exceed the limit; see `train`.
        """
        return 2 * max(self.record["trained_for"], math.ceil(self.minutes_trained))

    @property
    def validations(self) -> tuple[int, int]:
        """The steps of the lowest validation loss and of the last validation; 0 and 0 without validations."""
        losses = {each["step"]: each["loss"] for each in read_metrics(self.run.metrics_path) if each["kind"] == "valid"}
        return min(losses, key=losses.__getitem__, default=0), max(losses, default=0)

    def _config(self, minutes: float, rest: float) -> Config:
        """Returns the preset's settings with the choices, adapted to the data and the remaining minutes."""
        config = apply_choices(self.choices, {**self.data.output_limit, "split": self.data.split_by})
        if checkpoints.exist(self.run.checkpoints_path):  # its search may have been chosen since
            config = dataclasses.replace(config, decode=self.run.config.decode)
        overrides = {choice.name: choice.value for choice in self.choices if choice.reason == GIVEN}
        limits = {
            "train.max_minutes": rest,
            **self._limits(minutes, rest, overrides.get("train.max_steps")),
            **overrides,
        }
        settings = [f"{name}={limits[name]}" for name in limits if name.startswith("train.")]
        return completed(config, self.data, settings)

    def _limits(self, minutes: float, rest: float, max_steps: Any) -> dict[str, Any]:
        """Returns the settings that limit the training, and reports the limit.

        Args:
            minutes: time limit of all starts together.
            rest: remaining minutes.
            max_steps: number of updates that the user gave, or None.
        """
        updates = round(self.choice("updates") * minutes / self.record["minutes"])
        if max_steps is None and updates < FEWEST_UPDATES:
            duration = minutes * FEWEST_UPDATES / max(updates, 1)
            self._say(
                f"{minutes:g} minutes allow about {updates} updates on this machine, but a usable model needs at least "
                f"{FEWEST_UPDATES}: training continues until then, about {duration:.1f} minutes. Ctrl-C ends it early; "
                "the next steps then use the current weights"
            )
            return _end(FEWEST_UPDATES, FEWEST_UPDATES) | {"train.max_minutes": 0.0}
        self._say(
            f"{rest:.1f} minutes of training; Ctrl-C ends it early, and the next steps then use the current weights"
        )
        max_steps = NO_LIMIT if max_steps is None else int(max_steps)
        return _end(max_steps, min(max_steps, updates))

    def choose_weights(self) -> None:
        """Chooses the average of the last checkpoints, the best checkpoint or the last one, by validation.

        The weights become the run's checkpoint `chosen`, which programs then use by default.
        """
        if not self.record["chosen"]:
            self._compare_weights(self.run.checkpoints_path)
        choice = self.record["chosen"]
        self._say(f"chosen: {choice['name']}, by {choice['compared']}")

    def choose_search(self) -> None:
        """Chooses the length penalty by the score of the validation set, and stores it in the run's configuration.

        A length penalty that the user gave is kept. Searches without a length penalty are not changed.
        """
        from t2t_keras.inference.translator import Translator

        decode = self.run.config.decode
        has_penalty = decode.beam_size > 1 and not decode.sampling and decode.length_normalization == "gnmt"
        is_given = any(choice.name == "decode.length_penalty" for choice in self.choices)
        if has_penalty and not (is_given or self.record["search"]):
            self._compare_penalties(decode)
        self.translator = Translator.load(self.run.path, CHOSEN)
        if self.record["search"]:
            self._say(f"chosen: {self.record['search']}")

    def _compare_penalties(self, decode: DecodeConfig) -> None:
        from t2t_keras.fitting.search_choice import SearchChoice, SearchGrid

        penalties = tuple({"length_penalty": penalty} for penalty in _LENGTH_PENALTIES)
        with self.run.lock():
            choice = SearchChoice(self.run, self.data.text("valid"), lambda trial: None)
            best = choice.choose(SearchGrid((), (decode.beam_size,), penalties))
        scores = {trial.decode.length_penalty: f"{trial.score:.1f}" for trial in choice.trials}
        compared = ", ".join(f"{penalty:g} {scores[penalty]}" for penalty in sorted(scores))
        self.record.update(search=f"length penalty {best.decode.length_penalty:g}, by bleu: {compared}")

    def _compare_weights(self, path: Path) -> None:
        from t2t_keras.inference.translator import Translator

        config = self.run.config
        steps = checkpoints.steps(path)
        recent_steps = [step for step in steps[-config.train.keep_checkpoints :] if 2 * step >= steps[-1]]
        best = checkpoints.best(path)
        translator = Translator.load(self.run.path, "latest")
        single_steps = dict.fromkeys([best.step if best else steps[-1], steps[-1]])
        candidates = [self._validate(translator, config, [step]) for step in single_steps]
        if len(recent_steps) > 1:
            candidates.append(self._validate(translator, config, recent_steps))
        metric = config.train.best_metric
        order = min if metric == "loss" else max
        choice = order(candidates, key=lambda each: each.value)
        names = [checkpoints.step_name(step) for step in choice.steps]
        state = {"averaged": [str(path / name) for name in names], "config": config.to_dict()}
        checkpoints.save_weights(path, CHOSEN, steps[-1], choice.arrays, state)
        values = ", ".join(f"{each.name} {each.value:.3f}" for each in candidates)
        self.record.update(
            chosen={"name": choice.name, "checkpoints": names, "step": steps[-1], "compared": f"{metric}: {values}"}
        )

    def _validate(self, translator: "Translator", config: Config, steps: Sequence[int]) -> _Weights:
        """Computes the mean of checkpoints, or reads the weights of one, and validates by `train.best_metric`."""
        from t2t_keras import evaluation
        from t2t_keras.models.weights import assign_weights

        path = self.run.checkpoints_path
        members = [checkpoints.load(path / checkpoints.step_name(step), weights_only=True) for step in steps]
        arrays = averaging.average(members) if len(members) > 1 else members[0].ema or members[0].weights
        assign_weights(cast("SequenceModel", translator.model), dict(arrays))
        sources, references = self.data.text("valid")
        if config.train.best_metric == "loss":
            total, count = evaluation.target_cross_entropy(translator, sources, references)
            value = total / count
        else:
            hypotheses = [each.text for each in translator.translate(sources, scored=False)]
            language = language_of(references, config.data.target_language)
            value = translator.task.monitored(hypotheses, references, language)
        name = f"the average of {len(steps)} checkpoints" if len(steps) > 1 else f"the checkpoint of step {steps[0]:,}"
        return _Weights(name, list(steps), dict(arrays), value)

    def score(self) -> None:
        """Scores the test set, reports the scores, and records examples of good and bad translations."""
        from t2t_keras import evaluation

        if not self.record["scores"]:
            sources, references = self.data.text("test")
            settings = ScoringSettings(language_of(references, self.data.config.target_language))
            result = evaluation.evaluate(self.translator, sources, references, settings)
            described = {"data_split": "test", "checkpoint": CHOSEN, **dataclasses.asdict(self.translator.config)}
            evaluation.write_evaluation(self.run.path / "evaluation" / "test", result, described)
            scores = [dataclasses.asdict(score) for score in result.scores if score.name in ("BLEU", "chrF")]
            examples = _examples(sources, references, result.hypotheses)
            self.record.update(scores=scores, examples=examples)
        beam = self.translator.config.beam_size
        self._say(f"{self.data.counts['test']['kept']:,} sentences that training has not seen, beam {beam}")
        for score in self.record["scores"]:
            self._say(f"{score['name']} {score['value']:.1f}  ({score['signature']})")
        if any(score["name"] == "BLEU" and score["value"] < _LOW_BLEU for score in self.record["scores"]):
            self._say(f"With a BLEU below {_LOW_BLEU}, most translations are wrong: train longer, or on more text")
        self._say(f"written: {self.run.path / 'evaluation' / 'test' / 'hypotheses.txt'}")

    def export(self) -> Path:
        """Exports the chosen weights as a new version, unless the newest one has them; returns its directory."""
        from t2t_keras.export.writing import export_translator  # imports packages that only an export needs

        choice = self.record["chosen"]
        origin = {"run": self.run.path.resolve().name, **{name: choice[name] for name in ("checkpoints", "step")}}
        version = Run(self.places.export_dir).exported
        if version and origin.items() <= _origin(version).items():
            self._say(f"{version} was exported before")
        else:
            with without_notices():
                version = export_translator(self.translator, self.run.config, self.places.export_dir, origin=origin)
            self._say(f"exported: {version}")
        return version


def this_machine() -> dict[str, Any]:
    """Returns the arguments of `planning.fit_rules.choose` that describe this machine."""
    import tensorflow as tf

    has_gpu, has_tpu = bool(tf.config.list_physical_devices("GPU")), bool(os.environ.get("TPU_NAME"))
    return {
        "has_accelerator": has_gpu or has_tpu,
        "has_tpu": has_tpu,
        "computes_in_bfloat16": computes_in_bfloat16(),
    }


def apply_choices(choices: Iterable[Choice], decode: Mapping[str, Any] | None = None) -> Config:
    """Returns the chosen preset with the chosen settings, except those of the data.

    Args:
        choices: the choices, among them the preset.
        decode: decoding settings that the text requires, by name.

    Raises:
        InputError: a setting is unknown, or settings are incompatible.
    """
    values = {choice.name: choice.value for choice in choices}
    config = presets.preset(values["preset"])
    config = dataclasses.replace(config, decode=dataclasses.replace(config.decode, **(decode or {})))
    rest = ("preset", "held_out_pairs", "updates", "data.vocab_size")
    return configuration.override(config, [f"{name}={value}" for name, value in values.items() if name not in rest])


def _relative_cost(config: Config, has_accelerator: bool) -> float:
    """Estimates the cost of an update, in the unit of work of `planning.fit_rules`.

    On a processor, FLOPs determine the time. The unit is too small a model to keep an accelerator busy, so there, the
    number of tokens is the better estimate.
    """
    unit = presets.preset("tiny")
    unit = Config(
        model=dataclasses.replace(unit.model, vocab_size=UNIT_VOCAB_SIZE),
        train=dataclasses.replace(unit.train, tokens_per_batch=UNIT_TOKENS),
    )
    if has_accelerator:
        return config.train.tokens_per_batch / unit.train.tokens_per_batch
    return update_flops(config, _SENTENCE_TOKENS) / update_flops(unit, _SENTENCE_TOKENS)


def format_choices(choices: Sequence[Choice]) -> str:
    """Formats the choices as aligned lines of names, values and reasons."""
    rows = [(each.name, str(each.value), each.reason) for each in choices]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {reason}" for name, value, reason in rows)


def missing_for_serving() -> str | None:
    """Returns the name of a missing package of the extra `serve`, or None."""
    try:
        importlib.import_module("tensorflow_serving.apis")
        importlib.import_module("t2t_keras.serving.server")
    except ModuleNotFoundError as error:
        return str(error.name).partition(".")[0]
    return None


def _end(max_steps: int, updates: int) -> dict[str, Any]:
    """Returns the settings that limit a training in which `updates` are expected."""
    return {"train.max_steps": max_steps, "train.decay_steps": updates // _DECAYING_SHARE}


def _origin(version: Path) -> Mapping[str, Any]:
    """Reads the origin of an exported version's weights."""
    path = version / CONFIG_FILE
    try:
        return json.loads(path.read_text(encoding="utf-8"))["export"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error!r}; delete {version} to export again") from error


def _examples(sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, list]:
    """Selects the sentences whose outputs are most and least similar to their references by chrF.

    Prefers sentences of at least `_FEWEST_WORDS` words.
    """
    from t2t_keras.tasks.translation_scores import sentence_chrf

    rows = list(zip(sources, references, hypotheses, sentence_chrf(hypotheses, references), strict=True))
    rows = [row for row in rows if len(row[0].split()) >= _FEWEST_WORDS] or rows
    rows.sort(key=lambda row: (-row[3], -len(row[0])))
    best = rows[: min(_EXAMPLES, (len(rows) + 1) // 2)]
    worst = rows[len(best) :][-_EXAMPLES:][::-1]
    return {"best": best, "worst": worst}
