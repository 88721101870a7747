"""What lies beside graphs that are to be used without this package."""

import json
from pathlib import Path

from t2t_keras.formats.graphs import standalone
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.text.subwords import MAGIC

PROGRAM = "translate.py"


def write_vocabularies(model: PortableModel, folder: Path) -> tuple[str, ...]:
    """Writes source.model and target.model, and returns notes on them."""
    tokenizer = model.tokenizer
    for name, side in (("source.model", tokenizer.source), ("target.model", tokenizer)):
        (folder / name).write_bytes(side.serialized)
    if tokenizer.serialized.startswith(MAGIC):
        return ("source.model and target.model are subwords of tensor2tensor, which SentencePiece cannot read",)
    return ()


def write_beside(model: PortableModel, folder: Path) -> tuple[str, ...]:
    """Writes the vocabularies, the settings of the search and the program that has it; returns notes on them."""
    decode = model.config.decode
    settings = {name: getattr(decode, name) for name in standalone.SETTINGS}
    (folder / standalone.SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / PROGRAM).write_bytes(Path(standalone.__file__).read_bytes())
    return write_vocabularies(model, folder)
