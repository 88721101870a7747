"""The flags that name the files of the corpora to prepare."""

import itertools

from absl import flags

from t2t_keras.config import DataConfig
from t2t_keras.data import readers
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task

from ..flag_types import FILE, DEFINE_multi_path

FLAGS = flags.FLAGS

_BOTH = {"source": f", or both sides ({readers.WITH_BOTH_SIDES})", "target": ""}
_SPLITS = {"train": "training", "valid": "validation", "test": "test"}

for split in corpora.SPLITS:
    for side in ("source", "target"):
        text = f"With --corpus=files: {side}s of the {_SPLITS[split]} set{_BOTH[side]}; also compressed."
        DEFINE_multi_path(f"{split}_{side}", f"{text} Give it several times for several corpora.", FILE)
flags.DEFINE_multi_string(
    "tag",
    list(DataConfig().tags),
    "A symbol such as <2fr> in front of all sources of a corpus; one per corpus, '' for none.",
)
flags.DEFINE_bool("tsv", False, "With --corpus=files: read --*_source files with any other suffix as .tsv.")


def paths() -> list[dict[str, corpora.Paths]]:
    """Returns the files of each corpus."""
    names = [(split, side) for split in corpora.SPLITS for side in ("source", "target")]
    values = [FLAGS[f"{split}_{side}"].value for split, side in names]
    count = len(values[0]) or 1
    for (split, side), files in zip(names, values, strict=True):
        if len(files) > count or (split == "train" and 0 < len(files) < count):
            raise InputError(f"--{split}_{side}: expected {count} values, one per corpus, got {len(files)}")
    if FLAGS.tsv and not values[0]:
        raise InputError("--tsv requires --train_source")
    rows = itertools.zip_longest(*values)
    return [_corpus_paths({name: file or None for name, file in zip(names, files, strict=True)}) for files in rows]


def _corpus_paths(files: dict[tuple[str, str], str | None]) -> dict[str, corpora.Paths]:
    paths: dict[str, corpora.Paths] = {}
    for split in corpora.SPLITS:
        source, target = files[split, "source"], files[split, "target"]
        if source is None and target is None:
            continue
        if not task(FLAGS.task).is_parallel:
            if source is None or target is not None or FLAGS.tsv:
                raise InputError(
                    f"--task={FLAGS.task} reads one file per split in the task's format: give only --{split}_source"
                )
        elif FLAGS.tsv:
            if source is None or target is not None:
                raise InputError(f"with --tsv, give only --{split}_source")
        elif source is None or (target is None and not readers.has_both_sides(source)):
            raise InputError(
                f"give both --{split}_source and --{split}_target, or only --{split}_source with a file that has both "
                "sides, such as a .tsv; --tsv reads a file of any other name as one"
            )
        paths[split] = (source, target)
    return paths
