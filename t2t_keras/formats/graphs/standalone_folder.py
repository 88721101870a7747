"""Writes the files that accompany graphs for use without this package."""

import json
from pathlib import Path

from t2t_keras.formats.graphs import standalone
from t2t_keras.formats.portable_model import PortableModel, search_notes, task_notes

PROGRAM = "translate.py"


def write_vocabularies(model: PortableModel, folder: Path) -> tuple[str, ...]:
    """Writes source.model and target.model; returns a note if SentencePiece cannot read them."""
    tokenizer = model.tokenizer
    for name, side in (("source.model", tokenizer.source), ("target.model", tokenizer)):
        (folder / name).write_bytes(side.serialized)
    if model.has_subwords:
        return ("source.model and target.model are subwords of tensor2tensor, which SentencePiece cannot read",)
    return ()


def write_standalone_files(model: PortableModel, folder: Path) -> tuple[str, ...]:
    """Writes the vocabularies, the settings of the search and, if possible, the program that translates.

    There is no program for vocabularies of tensor2tensor's subwords, which SentencePiece cannot read.

    Returns:
        Notes on settings and tasks that the program does not support.
    """
    decode, data = model.config.decode, model.config.data
    settings = {name: getattr(decode, name) for name in standalone.SETTINGS}
    settings |= {name: getattr(data, name) for name in standalone.TEXT_SETTINGS}
    (folder / standalone.SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if notes := write_vocabularies(model, folder):
        return (*notes, f"there is no {PROGRAM}: it cannot split texts")
    (folder / PROGRAM).write_bytes(Path(standalone.__file__).read_bytes())
    return (*search_notes(decode, standalone.SETTINGS, PROGRAM), *task_notes(model.config, PROGRAM))
