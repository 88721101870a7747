"""Prepares parallel text for training: cleaning, a shared vocabulary, token ids on disk.

Examples:
  python -m launch.prepare_data --train_source=a.en --train_target=a.de --vocab_size=8000 --data_dir=data/mine
  python -m launch.prepare_data --corpus=multi30k --vocab_size=8000 --data_dir=data/multi30k
"""

from absl import flags

from t2t_keras.config import DataConfig
from t2t_keras.data import corpora
from t2t_keras.data.cleaning import REASONS
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.errors import InputError

from . import program

FLAGS = flags.FLAGS
_DEFAULTS = DataConfig()


def define_flags() -> None:
    """Defines this program's flags."""
    flags.DEFINE_string("corpus", _DEFAULTS.corpus, "files or multi30k.")
    for split in corpora.SPLITS:
        for side in ("source", "target"):
            flags.DEFINE_string(f"{split}_{side}", None, f"corpus=files: {side} side of {split}; .gz .bz2 .xz too.")
    flags.DEFINE_bool("tsv", False, "corpus=files: the --*_source files hold both sides, separated by a tab.")
    flags.DEFINE_string("source_language", _DEFAULTS.source_language, "Language code of the source side.")
    flags.DEFINE_string("target_language", _DEFAULTS.target_language, "Language code of the target side.")
    flags.DEFINE_integer("vocab_size", _DEFAULTS.vocab_size, "Entries of the shared vocabulary.")
    flags.DEFINE_integer("max_length", _DEFAULTS.max_length, "Longest side of a training pair, in tokens.")
    flags.DEFINE_float("max_length_ratio", _DEFAULTS.max_length_ratio, "Largest ratio of a training pair's lengths.")
    flags.DEFINE_bool("lowercase", _DEFAULTS.lowercase, "Lowercase all text.")
    flags.DEFINE_integer("seed", _DEFAULTS.seed, "Of what is drawn at random.")
    flags.DEFINE_string("data_dir", None, "Folder for the prepared data.", required=True)
    flags.DEFINE_string("download_dir", "downloads", "Folder for downloads; what is there is not downloaded.")


def main(argv: list[str]) -> None:
    """Prepares what the flags say and prints what was kept."""
    del argv  # every setting is a flag
    config = DataConfig(**{name: FLAGS[name].value for name in vars(_DEFAULTS)})
    prepared = prepare(_corpus(), config, FLAGS.data_dir, report=lambda line: print(line, flush=True))
    print(_table(prepared))


def _corpus() -> corpora.Corpus:
    if FLAGS.corpus == "multi30k":
        return corpora.multi30k(FLAGS.source_language, FLAGS.target_language, FLAGS.download_dir)
    if FLAGS.corpus != "files":
        raise InputError(f"--corpus={FLAGS.corpus}: unknown; valid: files, multi30k")
    paths = {split: (FLAGS[f"{split}_source"].value, FLAGS[f"{split}_target"].value) for split in corpora.SPLITS}
    return corpora.files({split: sides for split, sides in paths.items() if any(sides)})


def _table(prepared: PreparedData) -> str:
    """What became of the pairs of each split, one line a count."""
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
    """The console entry point."""
    program.run(main)


if __name__ == "__main__":
    run()
