"""Trains a model on two text files: chooses settings, prepares the text, trains, scores and exports the model.

Line n of one file is the translation of line n of the other. Files such as .tsv, .tmx and .xliff have both sides. After
an interruption, run the same command to resume. To train longer, increase --minutes.

Examples:
    python -m launch.fit --source=a.en --target=a.de --minutes=60 --output=mine
    python -m launch.fit --source=pairs.tsv --source_language=en --target_language=fr --minutes=60 --output=mine
    python -m launch.fit --corpus=multi30k --minutes=60 --output=mine --set=model.dropout_rate=0.3
"""

import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from t2t_keras import config as configuration
from t2t_keras.config import DataConfig
from t2t_keras.data import readers
from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.held_out import TextSurvey
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.fitting.fit_steps import FitSteps, Places, apply_choices, format_choices, missing_for_serving
from t2t_keras.fitting.model_card import commands, write_card
from t2t_keras.machine.locking import locked
from t2t_keras.machine.processor import num_cores
from t2t_keras.models import presets
from t2t_keras.planning import fit_rules
from t2t_keras.planning.fit_rules import Choice
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.text.language_codes import language_of_name
from t2t_keras.values import PositiveInt

from . import helping, program
from .flag_types import FILE, MINUTES, NEW_FOLDER, DEFINE_number, DEFINE_path

_CORPORA = [name for name in corpora.NAMES if name not in ("files", "docstrings")]  # with text to translate

_TEXT_SETTINGS = ("data.lowercase", "data.final_marks", "data.truecase")
_SOURCE = DEFINE_path(
    "source", None, f"UTF-8 text, or both sides in one file ({readers.WITH_BOTH_SIDES}); also compressed.", FILE
)
_TARGET = DEFINE_path("target", None, "The translation of the source, line by line.", FILE)
_CORPUS = flags.DEFINE_string("corpus", "files", f"Instead of --source: {', '.join(_CORPORA)}.")
_SOURCE_LANGUAGE = flags.DEFINE_string("source_language", None, "Language code; default: from the file's name.")
_TARGET_LANGUAGE = flags.DEFINE_string("target_language", None, "Language code; default: from the file's name.")
_OUTPUT = DEFINE_path("output", None, "Folder for all results.", NEW_FOLDER, required=True)
_MINUTES_HELP = "Time for preparing and training, summed over all starts; scoring and exporting take extra time."
_MINUTES = DEFINE_number("minutes", 60.0, _MINUTES_HELP, MINUTES)
_PRESET = flags.DEFINE_string("preset", None, "The preset; default: chosen by the amount of text and --minutes.")
_VOCAB_SIZE = DEFINE_number(
    "vocab_size", None, "Entries of the vocabulary; default: chosen by the amount of text and --minutes.", PositiveInt
)
_HELD_OUT_PAIRS = DEFINE_number(
    "held_out_pairs",
    None,
    "Pairs in the validation set, and in the test set; default: chosen by the amount of text.",
    PositiveInt,
)
_SET = flags.DEFINE_multi_string(
    "set",
    [],
    f"Overrides a choice: section.field=value; sections: model, train, decode; and {', '.join(_TEXT_SETTINGS)}.",
)
_LICENCE = flags.DEFINE_string("licence", "", "Licence of the text, for the model card.")
_DOWNLOAD_DIR = DEFINE_path("download_dir", "downloads", "Folder for downloads; existing files are reused.", NEW_FOLDER)

_SAVING = "train.checkpoint_minutes"  # has little influence on the model
_RECENT = 0.75  # share of all updates; if the validation loss was lowest earlier, it is no longer falling


def main(argv: list[str]) -> None:
    """Runs all steps that are not done yet."""
    config, paths = _text()
    overrides = _choices_of_flags()
    config = configuration.override(configuration.Config(data=config), _settings_of_text()).data
    output = pathlib.Path(_OUTPUT.value)
    task(config.task).check([], ScoringSettings(config.target_language))
    places = Places(output / "data", output / "run", _export_dir(output))
    steps = FitSteps(places, program.say)
    _check_contents(output, steps)
    with locked(output, verb="fit a model", participle="fitted", flag="--output"):
        steps = FitSteps(places, program.say)  # reads the record again, which another process may have changed
        corpus = corpora.of_config(config, _DOWNLOAD_DIR.value, paths, program.say)
        if _HELD_OUT_PAIRS.value is not None and {"valid", "test"} <= corpus.splits.keys():
            raise InputError(f"--held_out_pairs: --corpus={_CORPUS.value} has its own sets; omit the flag")
        survey = TextSurvey(corpus)
        if not steps.record["prepared"]:  # until then, choices and text can still be corrected
            # One update, because a folder that has data but no record of the request would be refused.
            choices = _choose(steps, survey, overrides)
            inputs = {"pairs": survey.pairs, "minutes": _MINUTES.value, "asked": _fixed_settings(config)}
            steps.record.update(choices=choices, **inputs, text=None)
        steps.record.check_same("asked", _fixed_settings(config), output)
        held_out = steps.choice("held_out_pairs")
        corpus = survey.holding_out({"valid": held_out, "test": held_out})
        steps.check_text(corpus)
        steps.record.update(files=[pathlib.Path(flag.value).name for flag in (_SOURCE, _TARGET) if flag.value])
        _run_steps(steps, corpus, config)


def _run_steps(steps: FitSteps, corpus: corpora.Corpus, config: DataConfig) -> None:
    licence = _LICENCE.value or steps.record["licence"] or ""
    is_described = steps.record["finished"] and licence == (steps.record["licence"] or "")
    if is_described and steps.record["trained_for"] >= _MINUTES.value:
        program.say(f"{_OUTPUT.value} is complete: training has used its {steps.record['trained_for']:g} minutes")
        program.say(_advice(steps))
        return
    program.title("1. Text and choices")
    program.say(format_choices(steps.choices))
    if other_choices := _other_choices(steps):
        program.say(
            f"started with a different --minutes; with {_MINUTES.value:g}, a new --output would choose {other_choices}"
        )
    steps.prepare(corpus, config, num_cores())
    counts = steps.data.counts
    program.say(", ".join(f"{split}: {counts[split]['kept']:,} pairs" for split in steps.data.splits))
    num_drawn = sum(counts[split]["kept"] for split in ("valid", "test") if f"drawn_{split}" in corpus.identity)
    for reason, meaning in REASONS.items():
        num_dropped = counts["train"].get(reason, 0) - (num_drawn if reason == "held_out" else 0)
        if num_dropped > 0:
            program.say(f"  excluded from training: {num_dropped:,} pairs ({meaning})")
    program.title("2. Training")
    outcome = steps.train(_MINUTES.value, counts_preparing=True)
    if outcome and outcome.signal not in (0, signal.SIGINT):
        sys.exit(128 + outcome.signal)
    steps.choose_weights()
    steps.choose_search()
    program.title("3. Scores")
    steps.score()
    for kind, rows in steps.record["examples"].items():
        for source, reference, hypothesis, score in rows:
            program.say(f"  {kind}, chrF {score:.0f}: {source}\n    {hypothesis}\n    reference: {reference}")
    program.title("4. Export")
    if missing := missing_for_serving():
        program.say(f"Exporting needs {missing}: pip install '.[serve]', then run the same command to resume.")
        return
    version = steps.export()
    card = write_card(steps, version, licence, shlex.join(sys.argv[1:]), _as_typed)
    steps.record.update(finished=True, licence=licence or None)
    program.say(f"model card: {card}")
    program.title("Next steps")
    program.say(_advice(steps))


def _text() -> tuple[DataConfig, list[dict[str, corpora.Paths]]]:
    """Returns the settings of the data, and the files of the corpus."""
    source, target = _SOURCE.value, _TARGET.value
    languages = [_SOURCE_LANGUAGE.value, _TARGET_LANGUAGE.value]
    if _CORPUS.value != "files":
        if source or target:
            raise InputError(f"--corpus={_CORPUS.value} has its own text; omit --source and --target")
        defaults = DataConfig()
        codes = [languages[0] or defaults.source_language, languages[1] or defaults.target_language]
        return DataConfig(corpus=_CORPUS.value, source_language=codes[0], target_language=codes[1]), []
    if not source:
        raise InputError("give --source and --target, two text files, or --corpus")
    has_both_sides = readers.has_both_sides(source)
    if has_both_sides == bool(target):
        advice = "give --target, its translation, or a file with both sides, such as a .tsv or .tmx"
        raise InputError(f"--source={source}: {'the file has both sides; omit --target' if has_both_sides else advice}")
    paths = [] if has_both_sides else [source, target]
    names = [language_of_name(pathlib.Path(path).name) for path in paths] or [None, None]
    codes = [language or name for language, name in zip(languages, names, strict=True)]
    if None in codes or codes[0] == codes[1]:
        files, problem = f"{source} and {target}", "the names do not end in two languages, as a.en and a.de do"
        if has_both_sides:
            files, problem = source, "the name of a file with both sides does not name its languages"
        if codes[0] and codes[0] == codes[1]:
            problem = f"both languages are {codes[0]}"
        raise InputError(f"{files}: {problem}; give --source_language and --target_language, such as en and de")
    config = DataConfig(source_language=str(codes[0]), target_language=str(codes[1]))
    return config, [{"train": (source, target)}]


def _settings_of_text() -> list[str]:
    """Returns the settings of --set that concern the data."""
    return [setting for setting in _SET.value if setting.partition("=")[0].strip() in _TEXT_SETTINGS]


def _choices_of_flags() -> list[Choice]:
    """Returns the choices of the flags; raises InputError for invalid settings."""
    base = presets.preset(_PRESET.value or "tiny")
    configuration.override(base, _SET.value)
    options = {"preset": _PRESET, "data.vocab_size": _VOCAB_SIZE, "held_out_pairs": _HELD_OUT_PAIRS}
    choices = [Choice(name, flag.value, fit_rules.GIVEN) for name, flag in options.items() if flag.value is not None]
    for setting in _SET.value:
        name, value = (part.strip() for part in setting.partition("=")[::2])
        if name in _TEXT_SETTINGS:
            continue
        if name.startswith(("data.", "model.vocab_size", "model.source_vocab_size")):
            names = ", ".join(_TEXT_SETTINGS)
            raise InputError(f"--set {setting}: valid settings of the data: --vocab_size, {names}")
        if name == "train.max_minutes":
            raise InputError(f"--set {setting}: give --minutes instead")
        choices.append(Choice(name, value, fit_rules.GIVEN))
    return choices


def _check_contents(output: pathlib.Path, steps: FitSteps) -> None:
    """Raises InputError if the folder has contents that this program did not write."""
    if steps.record["asked"] is not None or not output.exists():
        return
    if others := sorted(entry.name for entry in output.iterdir() if entry.name not in (".lock", "run")):
        raise InputError(f"--output={output} contains {others[0]}, which launch.fit did not write; give a new folder")


def _export_dir(output: pathlib.Path) -> pathlib.Path:
    """Returns the model's folder, which has the name that --output had at the first export."""
    exported = sorted((output / "serving").glob("[!.]*"))
    return exported[0] if exported else output / "serving" / pathlib.Path(os.path.abspath(output)).name


def _fixed_settings(config: DataConfig) -> dict[str, Any]:
    """Returns the settings that must not change in a folder; --minutes may grow, and checksums compare the text."""
    languages = {"source_language": config.source_language, "target_language": config.target_language}
    values = {flag.name: flag.value for flag in (_CORPUS, _PRESET, _VOCAB_SIZE, _HELD_OUT_PAIRS, _SET)}
    return {**languages, **values}


def _choose(steps: FitSteps, survey: TextSurvey, overrides: Sequence[Choice]) -> list[dict[str, Any]]:
    """Returns the choices as JSON values; raises InputError if the flags conflict with the other choices."""
    with steps.preparing():
        program.say("reading the text; its size determines the choices")
        choices = steps.choose(survey.pairs, _MINUTES.value, overrides=overrides)
    return [vars(each) for each in choices]


def _other_choices(steps: FitSteps) -> str:
    """Returns the choices that a new folder would make differently for the current --minutes."""
    if (pairs := steps.record["pairs"]) is None:
        return ""
    overrides = [choice for choice in steps.choices if choice.reason == fit_rules.GIVEN]
    new_choices = steps.choose(pairs, _MINUTES.value, overrides=overrides)
    names = [next(each.value for each in choices if each.name == "preset") for choices in (steps.choices, new_choices)]
    if names[0] != names[1]:
        return f"preset: {' -> '.join(names)}"
    old, new = apply_choices(steps.choices), apply_choices(new_choices)
    return ", ".join(each for each in configuration.differences(old, new) if not each.startswith(_SAVING))


def _as_typed(words: str) -> str:
    return helping.as_typed(words, sys.argv[0])


def _advice(steps: FitSteps) -> str:
    lowest, last = steps.validations
    command = f"the same command with --minutes={steps.suggested_minutes:g}"
    improvement = command, "resume training; the validation loss was still falling"
    if steps.record["has_converged"] or lowest < _RECENT * last:
        dropout = "a higher --set=model.dropout_rate in a new --output"
        improvement = (
            f"more text of the same kind, or {dropout}",
            f"the validation loss was lowest at update {lowest:,}",
        )
    lines = [
        *commands(steps),
        improvement,
        (str(steps.run.curves_path), "training curves"),
        ("docs/own_files.md", "the individual steps"),
    ]
    return _as_typed("\n".join(f"  {line}  # {meaning}" for line, meaning in lines))


run = program.command(main)
