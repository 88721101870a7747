"""Writes packages for Argos Translate: a model for CTranslate2 and its vocabulary in one file.

    argostranslate.package.install_from_path("FOLDER/translate-en_de-1_0.argosmodel")
    argostranslate.translate.translate("A dog runs.", "en", "de")

Reference: https://github.com/argosopentech/argos-translate
"""

import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import InputError
from t2t_keras.language_names import language_name

if TYPE_CHECKING:
    from t2t_keras.formats.portable_model import PortableModel

# The version of the package, and of Argos Translate. Old releases need a model of stanza in each package.
_PACKAGE_VERSION, _ARGOS_VERSION = "1.0", "1.11"

# Higher levels take much longer, and weights hardly shrink.
_COMPRESSION = 1


def write(model: "PortableModel", folder: Path, quantization: str = "float32") -> tuple[str, ...]:
    """Writes one package, translate-SOURCE_TARGET-1_0.argosmodel; see `known_formats.Writer`."""
    from t2t_keras.formats import ctranslate2
    from t2t_keras.formats.portable_model import check_expressible, text_notes

    config, tokenizer, data = model.sizes, model.tokenizer, model.config.data
    check_expressible(config, "CTranslate2")
    if model.has_subwords:
        raise InputError("Argos Translate needs a vocabulary of SentencePiece, not subwords of tensor2tensor")
    name = f"translate-{data.source_language}_{data.target_language}-{_PACKAGE_VERSION.replace('.', '_')}"
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        root = Path(temporary, name)
        (root / "model").mkdir(parents=True)
        weights = ctranslate2.with_positions(model.weights, config, ctranslate2.MAX_POSITIONS)
        entries = tokenizer.source.entries, tokenizer.entries
        ctranslate2.write_spec(weights, config, entries, root / "model", quantization)
        (root / "sentencepiece.model").write_bytes(tokenizer.source.serialized)
        metadata = _metadata(data.source_language, data.target_language)
        (root / "metadata.json").write_text(json.dumps(metadata, indent=4) + "\n", encoding="utf-8")
        (root / "README.md").write_text(_readme(metadata), encoding="utf-8")
        _write_zip(root, folder / f"{name}.argosmodel")
    return text_notes(model, "Argos Translate")


def _metadata(source: str, target: str) -> dict[str, str]:
    return {
        "type": "translate",
        "package_version": _PACKAGE_VERSION,
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": language_name(source),
        "to_code": target,
        "to_name": language_name(target),
    }


def _readme(metadata: dict[str, str]) -> str:
    return (
        f"# {metadata['from_name']} to {metadata['to_name']}\n\n"
        "A Transformer for Argos Translate. It was trained and converted with t2t_keras.\n"
    )


def _write_zip(root: Path, path: Path) -> None:
    """Writes the files of a folder to a zip file, with paths that begin with the folder's name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as package:
        for file in sorted(root.rglob("*")):
            if file.is_file():
                package.write(file, file.relative_to(root.parent))
