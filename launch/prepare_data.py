"""Prepares text for training: cleans it, makes a shared vocabulary, and writes token ids to disk.

Training text is prepared in shards, several in parallel. After an interruption, the same command prepares only the
missing shards. The result is bitwise the same for any number of processes. With --beam_runner, Apache Beam prepares the
shards, possibly on many machines, all of which must see the text and the folder.

Examples:
    python -m launch.prepare_data --train_source=a.en --train_target=a.de --vocab_size=8000 --data_dir=data/mine
    python -m launch.prepare_data --corpus=multi30k --vocab_size=8000 --data_dir=data/multi30k
    python -m launch.prepare_data --corpus=wmt14 --data_dir=data/wmt14
    python -m launch.prepare_data --corpus=multi30k --vocab_type=char --data_dir=data/multi30k_characters
    python -m launch.prepare_data --task=parsing --train_source=train.mrg --vocab_size=8000 --data_dir=data/trees
"""

import dataclasses
import pathlib
from typing import Any

from absl import flags

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.prepare import SHARD_PAIRS, PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.machine.beam_workers import BeamWorkers
from t2t_keras.machine.processor import num_cores
from t2t_keras.machine.remote import mirror_of, origin
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import TASKS, task
from t2t_keras.text.language_codes import language_of_name
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.values import PositiveInt

from . import program, remote_paths
from .flag_groups import corpus_flags, setting_flags
from .flag_types import FOLDER, NEW_FOLDER, DEFINE_number, DEFINE_path

FLAGS = flags.FLAGS
_DEFAULTS = DataConfig()

flags.DEFINE_string("task", _DEFAULTS.task, f"The task, which defines source and target: {', '.join(TASKS)}.")
flags.DEFINE_string(
    "corpus", _DEFAULTS.corpus, f"The origin of the text, or several, separated by commas: {', '.join(corpora.NAMES)}."
)
flags.DEFINE_list(
    "directions", [], "Directions such as en-de,de-en in which each corpus is read; sources get tags such as <2de>."
)
DEFINE_number(
    "max_length",
    None,
    f"Maximum length of a side of a training pair, in tokens; default: {_DEFAULTS.max_length}, or for char and byte "
    f"{_DEFAULTS.max_length * DataConfig(vocab_type='char').tokens_of_a_piece:,}.",
    PositiveInt,
)
for _side, _code in (("source", _DEFAULTS.source_language), ("target", _DEFAULTS.target_language)):
    flags.DEFINE_string(f"{_side}_language", None, f"Language code; default: from the names of the files, or {_code}.")
setting_flags.define_usual(
    DataConfig,
    *("max_length_ratio", "lowercase", "final_marks", "truecase", "seed"),
    *("vocab_type", "vocab_size", "source_vocab_size", "extend_vocab", "symbols"),
)
DEFINE_path(
    "vocab_from", None, "A run, an export or prepared data whose vocabulary is used; --extend_vocab adds to it.", FOLDER
)
DEFINE_path("data_dir", None, "Folder for the prepared data.", NEW_FOLDER, required=True)
DEFINE_number("processes", num_cores(), "Number of shards prepared in parallel.", PositiveInt)
DEFINE_number(
    "shard_pairs", SHARD_PAIRS, "Training pairs per shard, which is one file; a pair needs 1 KB of memory.", PositiveInt
)
flags.DEFINE_string(
    "beam_runner",
    None,
    "A runner of Apache Beam that prepares the shards: direct (this machine), FlinkRunner, SparkRunner, "
    "DataflowRunner, ...; --processes then applies to text that one process must read.",
)
flags.DEFINE_list("beam_pipeline_options", [], "Options of the Beam pipeline, such as direct_num_workers=4.")
DEFINE_path("download_dir", "downloads", "Folder for downloads; existing files are reused.", NEW_FOLDER)
flags.adopt_module_key_flags(corpus_flags)
_LISTS = {"symbols": "symbols", "tags": "tag", "directions": "directions"}  # flags of lists by their settings
program.REMOTE |= {"data_dir": remote_paths.written, "vocab_from": remote_paths.vocabulary}


def main(argv: list[str]) -> None:
    """Prepares the data and prints a summary."""
    config = _config()
    corpus = corpora.of_config(config, FLAGS.download_dir, corpus_flags.paths(), program.say)
    vocab_path = _other_vocabulary(FLAGS.vocab_from)[1] if FLAGS.vocab_from else None
    data = prepare(corpus, config, FLAGS.data_dir, program.say, _workers(), FLAGS.shard_pairs, vocab_path)
    program.say(_table(data))


def _workers() -> int | BeamWorkers:
    """Returns the number of processes that prepare the shards, or the workers of Apache Beam."""
    if FLAGS.beam_runner:
        if mirror_of(FLAGS.data_dir) and FLAGS.beam_runner.lower() not in ("direct", "directrunner"):
            cause = f"--data_dir={origin(FLAGS.data_dir)}: the workers of {FLAGS.beam_runner} may be on other machines"
            advice = "prepare the data in a folder that all workers see, and copy it to the bucket"
            raise InputError(f"{cause}, which do not see this machine's copy of the bucket; {advice}")
        return BeamWorkers(FLAGS.data_dir, FLAGS.beam_runner, FLAGS.beam_pipeline_options, FLAGS.processes)
    if FLAGS.beam_pipeline_options:
        raise InputError("--beam_pipeline_options requires --beam_runner")
    return FLAGS.processes


def _config() -> DataConfig:
    defaults = {**vars(_DEFAULTS), **task(FLAGS.task).data}
    overrides = {name: FLAGS[name].value for name in defaults if name in FLAGS and FLAGS[name].present}
    lists = {name: tuple(FLAGS[flag].value) for name, flag in _LISTS.items()}
    languages = _languages_of_files() or _languages_of_directions()
    config = DataConfig(**{**defaults, **languages, **overrides, **lists, **_settings_of_other_vocabulary()})
    if FLAGS["max_length"].present:
        return config
    return dataclasses.replace(config, max_length=config.max_length * config.tokens_of_a_piece)


def _languages_of_files() -> dict[str, str]:
    """Returns the two languages in which the names of all training files end; empty if they do not."""
    sides = FLAGS.train_source, FLAGS.train_target
    source, target = ({language_of_name(pathlib.Path(path).name) for path in paths} for paths in sides)
    if len(source) != 1 or len(target) != 1 or source == target or None in source | target:
        return {}
    return {"source_language": str(*source), "target_language": str(*target)}


def _languages_of_directions() -> dict[str, str]:
    """Returns the two languages of the first direction; empty without directions."""
    if not FLAGS.directions:
        return {}
    source, target = DataConfig(directions=tuple(FLAGS.directions)).language_pairs[0]
    return {"source_language": source, "target_language": target}


def _settings_of_other_vocabulary() -> dict[str, Any]:
    """Returns the settings that --vocab_from determines; empty without the flag."""
    if not FLAGS.vocab_from:
        return {}
    for name in ("vocab_type", "vocab_size", "source_vocab_size", "lowercase", "truecase"):
        if FLAGS[name].present:
            raise InputError(f"--{name} is determined by --vocab_from; omit the flag")
    data, vocab_path = _other_vocabulary(FLAGS.vocab_from)
    sizes = {name: size or 0 for name, size in Tokenizer.load(vocab_path).sizes.items()}
    final_marks = FLAGS.final_marks if FLAGS["final_marks"].present else data.final_marks
    settings = {"lowercase": data.lowercase, "truecase": data.truecase, "final_marks": final_marks}
    return {"vocab_type": data.vocab_type, **settings, **sizes}


def _other_vocabulary(folder: str) -> tuple[DataConfig, pathlib.Path]:
    """Returns the data settings and the vocabulary file of a run, an export or prepared data."""
    run = Run(folder)
    if run.exists:
        return run.config.data, run.vocab_path
    try:
        data = PreparedData.open(folder)
    except InputError as error:
        raise InputError(f"--vocab_from={folder}: no run, export or prepared data: {error}") from None
    return data.config, data.vocab_path


def _table(data: PreparedData) -> str:
    meanings = {
        "read": "pairs read",
        "repaired": "pairs with repaired characters",
        **{reason: f"dropped: {meaning}" for reason, meaning in REASONS.items()},
        "kept": "pairs kept",
        "source_tokens": "source tokens",
        "target_tokens": "target tokens",
    }
    if data.config.final_marks:
        meanings["final_marks"] = "final marks changed"
    width = max(map(len, meanings.values()))
    lines = [" " * width + "".join(f"{split:>14}" for split in data.splits)]
    for name, meaning in meanings.items():
        numbers = [data.counts[split].get(name) for split in data.splits]
        cells = "".join(f"{'-' if number is None else format(number, ','):>14}" for number in numbers)
        lines.append(f"{meaning:<{width}}{cells}")
    if limit := data.output_limit:
        lines.append("output limit: {max_length_factor:g} x source + {max_length_offset} tokens".format(**limit))
    if task(data.config.task).has_sentences:
        lines.append(f"unit of translation: {data.split_by}")
    return "\n".join(lines)


run = program.command(main)
