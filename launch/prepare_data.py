"""Prepares text for training: cleans it, makes a shared vocabulary, and writes token ids to disk.

Examples:
  python -m launch.prepare_data --train_source=a.en --train_target=a.de --vocab_size=8000 --data_dir=data/mine
  python -m launch.prepare_data --corpus=multi30k --vocab_size=8000 --data_dir=data/multi30k
  python -m launch.prepare_data --corpus=wmt14 --data_dir=data/wmt14
  python -m launch.prepare_data --corpus=multi30k --vocab_type=char --data_dir=data/multi30k_characters
  python -m launch.prepare_data --task=parsing --train_source=train.mrg --vocab_size=8000 --data_dir=data/trees

Training text is prepared in shards, several in parallel. After an interruption, the same command prepares only the
missing shards. The result is the same, bit for bit, for any number of processes.
"""

import dataclasses
import itertools
import os
from typing import Any, get_args

from absl import flags

from t2t_keras.config import DataConfig
from t2t_keras.config.data_config import VocabType
from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.prepare import SHARD_PAIRS, PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import TASKS, task
from t2t_keras.text.tokenizer import Tokenizer

from . import program

FLAGS = flags.FLAGS
_DEFAULTS = DataConfig()


def define_flags() -> None:
    """Defines this program's flags."""
    flags.DEFINE_string("task", _DEFAULTS.task, f"What source and target mean: {', '.join(TASKS)}.")
    flags.DEFINE_string("corpus", _DEFAULTS.corpus, f"Where the text comes from: {', '.join(corpora.NAMES)}.")
    for split in corpora.SPLITS:
        for side in ("source", "target"):
            flags.DEFINE_multi_string(
                f"{split}_{side}",
                [],
                f"corpus=files: {side} side of {split}; .gz .bz2 .xz too. Repeat for more corpora.",
            )
    flags.DEFINE_multi_string(
        "tag",
        list(_DEFAULTS.tags),
        "A symbol such as <2fr> in front of all sources of a corpus; one for each, '' for none.",
    )
    flags.DEFINE_bool("tsv", False, "corpus=files: the --*_source files hold both sides, separated by a tab.")
    flags.DEFINE_string("source_language", _DEFAULTS.source_language, "Language code of the source side.")
    flags.DEFINE_string("target_language", _DEFAULTS.target_language, "Language code of the target side.")
    _define_vocabulary()
    flags.DEFINE_integer(
        "max_length",
        None,
        f"Longest side of a training pair, in tokens; default: {_DEFAULTS.max_length}, with char and byte "
        f"{_DEFAULTS.max_length * DataConfig(vocab_type='char').tokens_of_a_piece:,}.",
    )
    flags.DEFINE_float("max_length_ratio", _DEFAULTS.max_length_ratio, "Largest ratio of a training pair's lengths.")
    flags.DEFINE_bool("lowercase", _DEFAULTS.lowercase, "Lowercase all text.")
    flags.DEFINE_integer("seed", _DEFAULTS.seed, "Of what is drawn at random.")
    flags.DEFINE_string("data_dir", None, "Folder for the prepared data.", required=True)
    flags.DEFINE_integer("processes", len(os.sched_getaffinity(0)), "Shards prepared at once.", lower_bound=1)
    flags.DEFINE_integer(
        "shard_pairs",
        SHARD_PAIRS,
        "Training pairs of a shard, which end up in one file. A process takes about 1 KB for each.",
        lower_bound=1,
    )
    flags.DEFINE_string("download_dir", "downloads", "Folder for downloads; what is there is not downloaded.")


def _define_vocabulary() -> None:
    flags.DEFINE_enum(
        "vocab_type",
        _DEFAULTS.vocab_type,
        get_args(VocabType),
        "Entries of the shared vocabulary: bpe and unigram: pieces of words; char: characters; byte: bytes of UTF-8.",
    )
    flags.DEFINE_integer(
        "vocab_size",
        _DEFAULTS.vocab_size,
        "Entries of the shared vocabulary. With char: at most as many, and bytes spell the rarest characters. With "
        "byte there are always 260, and less is refused.",
    )
    flags.DEFINE_integer(
        "source_vocab_size",
        _DEFAULTS.source_vocab_size,
        "Entries of a vocabulary of sources alone; --vocab_size is that of targets then. 0: both sides share one.",
        lower_bound=0,
    )
    flags.DEFINE_list("symbols", list(_DEFAULTS.symbols), "Words of the text that are one token each, such as <2fr>.")
    flags.DEFINE_string("vocab_from", None, "A run or an export whose vocabulary is used.")
    flags.DEFINE_integer(
        "extend_vocab",
        _DEFAULTS.extend_vocab,
        "With --vocab_from: pieces of the training text that its vocabulary gets in addition.",
        lower_bound=0,
    )


def main(argv: list[str]) -> None:
    """Prepares the data and prints what was kept."""
    del argv  # every setting is a flag
    config = _config()
    corpus = corpora.of_config(config, FLAGS.download_dir, _paths(), _report)
    vocab_path = Run(FLAGS.vocab_from).vocab_path if FLAGS.vocab_from else None
    prepared = prepare(corpus, config, FLAGS.data_dir, _report, FLAGS.processes, FLAGS.shard_pairs, vocab_path)
    print(_table(prepared))


def _config() -> DataConfig:
    """The settings of the flags."""
    usual = {**vars(_DEFAULTS), **task(FLAGS.task).data}
    given = {name: FLAGS[name].value for name in usual if name in FLAGS and FLAGS[name].present}
    lists = {"symbols": tuple(FLAGS.symbols), "tags": tuple(FLAGS.tag)}
    config = DataConfig(**{**usual, **given, **lists, **_of_vocabulary()})
    if FLAGS["max_length"].present:
        return config
    return dataclasses.replace(config, max_length=config.max_length * config.tokens_of_a_piece)


def _of_vocabulary() -> dict[str, Any]:
    """The settings that come with the vocabulary of another run."""
    if not FLAGS.vocab_from:
        return {}
    for name in ("vocab_type", "vocab_size", "source_vocab_size", "lowercase"):
        if FLAGS[name].present:
            raise InputError(f"--{name} is decided by --vocab_from")
    run = Run(FLAGS.vocab_from)
    data = run.config.data
    sizes = {name: size or 0 for name, size in Tokenizer.load(run.vocab_path).sizes.items()}
    return {"vocab_type": data.vocab_type, "lowercase": data.lowercase, **sizes}


def _report(line: str) -> None:
    print(line, flush=True)


def _paths() -> list[dict[str, corpora.Paths]]:
    """The files of each corpus."""
    names = [(split, side) for split in corpora.SPLITS for side in ("source", "target")]
    given = itertools.zip_longest(*(FLAGS[f"{split}_{side}"].value for split, side in names))
    return [_paths_of(dict(zip(names, files, strict=True))) for files in given]


def _paths_of(files: dict[tuple[str, str], str | None]) -> dict[str, corpora.Paths]:
    paths: dict[str, corpora.Paths] = {}
    for split in corpora.SPLITS:
        source, target = files[split, "source"], files[split, "target"]
        if source is None and target is None:
            continue
        if not task(FLAGS.task).is_parallel:
            if source is None or target is not None or FLAGS.tsv:
                raise InputError(
                    f"--task={FLAGS.task} reads one file of its own format a split: --{split}_source alone"
                )
        elif source is None or (target is None) != FLAGS.tsv:
            needed = f"--{split}_source alone" if FLAGS.tsv else f"both --{split}_source and --{split}_target"
            raise InputError(f"{'with' if FLAGS.tsv else 'without'} --tsv, {needed} must be given")
        paths[split] = (source, target)
    return paths


def _table(prepared: PreparedData) -> str:
    meanings = {
        "read": "pairs read",
        **{reason: f"dropped: {meaning}" for reason, meaning in REASONS.items()},
        "kept": "pairs kept",
        "repaired": "of these with repaired characters",
        "source_tokens": "source tokens",
        "target_tokens": "target tokens",
    }
    width = max(map(len, meanings.values()))
    lines = [" " * width + "".join(f"{split:>14}" for split in prepared.splits)]
    for name, meaning in meanings.items():
        numbers = [prepared.counts[split].get(name) for split in prepared.splits]
        cells = "".join(f"{'-' if number is None else format(number, ','):>14}" for number in numbers)
        lines.append(f"{meaning:<{width}}{cells}")
    return "\n".join(lines)


define_flags()


def run() -> None:
    """The console command."""
    program.run(main)


if __name__ == "__main__":
    run()
