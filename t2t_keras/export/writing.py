"""Writes a version of an exported model, `EXPORT_DIR/VERSION/`, atomically."""

import dataclasses
import errno
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, cast, get_args

import tensorflow as tf

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.export.exported_weights import Storage, Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.signatures import signatures
from t2t_keras.export.smaller_graph import shrink
from t2t_keras.export.warmup import check_serving_messages, warmup_records
from t2t_keras.export_contract import ASSETS, CONFIG_FILE, GRAPH_FILE, VOCABULARY_FILE, WARM_UP_FILE
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.files import local_path, sha256, temporary_name
from t2t_keras.text.tokenizer import Tokenizer


def export_translator(
    translator: Translator,
    config: Config,
    export_dir: str | os.PathLike[str],
    storage: Storage = "float32",
    origin: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes the next version of a model for TensorFlow Serving and returns its directory.

    A version is a SavedModel that meets `t2t_keras.export_contract`. Its configuration includes checksums of the graph
    and the vocabulary. The directory is named by its number only once it is complete, because servers watch for such
    names.

    Args:
        translator: a translator with a single model; its settings are fixed in the export.
        config: the run's configuration; the translator's decoding settings replace those in it.
        export_dir: the model's directory, created if missing; its name becomes the model's name.
        storage: "float32", or "bfloat16" for half the size.
        origin: where the weights come from, as JSON values that are recorded in the export.

    Raises:
        ValueError: the model is an ensemble, the translator has a glossary, the storage is unknown, or the call is in
            the scope of a `tf.distribute.Strategy`, whose variables no server could read.
        InputError: the tokenizer is not a `Tokenizer`, `export_dir` is a URL, or the package for the warm-up requests
            is not installed.
        OSError: the version cannot be written.
    """
    _ = translator.single_model  # raises for an ensemble
    if translator.settings.glossary is not None:
        raise ValueError(
            "translator.settings.glossary must be None: an export stores no glossary; requests to a server have one"
        )
    if storage not in get_args(Storage):
        raise ValueError(f"storage must be one of {', '.join(get_args(Storage))}; got {storage!r}")
    if tf.distribute.has_strategy():
        raise ValueError("export_translator must be called outside the scope of a tf.distribute.Strategy")
    if not isinstance(translator.tokenizer, Tokenizer):
        kind = type(translator.tokenizer).__name__
        raise InputError(f"only a vocabulary of this package can be exported: a Tokenizer, not a {kind}")
    export_dir = local_path(export_dir, "export_dir")
    name = pathlib.Path(os.path.abspath(export_dir)).name
    check_serving_messages()
    details: dict[str, Any] = {"weights": storage, "excluded": list(translator.settings.excluded), **(origin or {})}
    export_dir.mkdir(parents=True, exist_ok=True)
    temporary = export_dir / temporary_name("export")  # not a number, so servers ignore it
    try:
        warmup = warmup_records(name, _save(translator, storage, temporary), translator.task.context or "")
        details["sha256"] = _checksums(temporary)
        document = {**dataclasses.replace(config, decode=translator.config).to_dict(), "export": details}
        (temporary / CONFIG_FILE).parent.mkdir()
        (temporary / CONFIG_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        with tf.io.TFRecordWriter(str(temporary / WARM_UP_FILE)) as writer:
            for record in warmup:
                writer.write(record)
        return _publish(temporary, export_dir)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save(translator: Translator, storage: Storage, path: pathlib.Path) -> dict[str, Any]:
    """Writes the SavedModel, and returns the functions of its signatures by name."""
    weights = Weights(translator.single_model, storage)
    # The module holds only what a loader must find. Everything else that the signatures need stays outside of it.
    module = tf.Module()
    module.weights = weights.variables
    tokenizer = cast(Tokenizer, translator.tokenizer)
    module.tokenizer = tokenizer.graph_tokenizer()
    module.source_tokenizer = module.tokenizer
    if tokenizer.source is not tokenizer:
        module.source_tokenizer = tokenizer.source.graph_tokenizer("source_tokenizer")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(pathlib.Path(folder) / pathlib.Path(VOCABULARY_FILE).name)
        module.vocabularies = [tf.saved_model.Asset(str(file)) for file in sorted(pathlib.Path(folder).iterdir())]
        pipeline = Pipeline(translator, weights, (module.source_tokenizer, module.tokenizer))
        module.truecaser = pipeline.truecaser
        # Without gradients, which would be a third of the graph: a served model is not trained.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        functions = signatures(pipeline)
        graphs = {name: function.get_concrete_function() for name, function in functions.items()}
        module.derived = weights.derived.trackable()
        tf.saved_model.save(module, str(path), graphs, options)
    shrink(path)
    return functions


def _checksums(path: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of the files that TensorFlow does not verify when it loads a SavedModel, by name."""
    files = [path / GRAPH_FILE, *sorted((path / ASSETS).glob("*"))]
    return {file.relative_to(path).as_posix(): sha256(file) for file in files}


def _publish(temporary: pathlib.Path, export_dir: pathlib.Path) -> pathlib.Path:
    """Renames a complete directory to the next free version number."""
    for path in temporary.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    numbers = [int(entry.name) for entry in export_dir.iterdir() if entry.name.isdecimal()]
    version = max(numbers, default=0) + 1
    while True:
        path = export_dir / str(version)
        try:
            if path.exists():  # rename would replace an empty directory, which another process may be about to fill
                raise FileExistsError(errno.EEXIST, "taken", path)
            os.rename(temporary, path)  # fails if another process has taken the number meanwhile
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            version += 1
            continue
        return path
