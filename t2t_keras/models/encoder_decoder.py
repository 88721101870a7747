"""The base class of the project's models: embeddings, logits, and saving and exporting with Keras."""

import dataclasses
import importlib
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config import ModelConfig
from t2t_keras.errors import InputError
from t2t_keras.kernels.contexts import compute_once
from t2t_keras.layers import TiedEmbedding
from t2t_keras.layers.attention.masks import check_token_ids
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.trainable_parts import ENTRY, part_arguments, restore_trainable, trainable_parts
from t2t_keras.models import presets
from t2t_keras.models.contract import BFLOAT16, States
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor


class EncoderDecoder(keras.Model):
    """The base class of an encoder-decoder family.

    A subclass sets `config_class` and implements `build_layers`, `states`, `encode` and `start_search`.

    Models work with Keras's `compile` and `fit`: `fit({"source": s, "target": t}, t)` with
    `t2t_keras.losses.SmoothedCrossEntropy`. The model shifts targets right, so the logits at a position predict the
    target at that position.

    Args:
        config: the settings of the family.

    Call arguments:
        inputs: "source", int [batch, source_len], and "target", int [batch, target_len], both padded with 0 at the end.
        seed: int32 [2], for all dropout inside; None draws seeds.
        training: whether dropout is active.

    Returns:
        Logits, float32 [batch, target_len, vocab].
    """

    config_class: ClassVar[type[ModelConfig]]
    states: Callable[..., States]  # `ScoringModel.states`

    def __init__(self, config: Any, **kwargs: Any) -> None:
        kind: type[Any] = self.config_class
        if not isinstance(config, kind):
            raise ValueError(
                f"`config` must be a {kind.__name__}, such as {kind.__name__}(vocab_size=8000), got {config!r}"
            )
        super().__init__(**kwargs)
        self.autocast = False  # otherwise Keras would round ids that are passed as floats
        self.config = config
        tied, has_bias = config.tie_embeddings, self.has_output_bias()
        self.target_embedding = self.make_embedding("target_embedding", use_bias=tied and has_bias)
        self.source_embedding = self.output_embedding = self.target_embedding
        if not tied or config.source_vocab_size is not None:
            self.source_embedding = self.make_embedding("source_embedding")
        if not tied:
            self.output_embedding = self.make_embedding("output_embedding", use_bias=has_bias)

    def has_output_bias(self) -> bool:
        """Whether the logits have a bias; they have one unless a family overrides this."""
        return True

    def make_embedding(self, name: str, *, use_bias: bool = False) -> TiedEmbedding:
        """Makes the embedding of that name: "target_embedding", "source_embedding" or "output_embedding"."""
        sizes = (self.entries_of(name), self.config.d_model)
        return TiedEmbedding(*sizes, use_bias=use_bias, name=name, **part_arguments(self))

    def entries_of(self, name: str) -> int:
        """The number of rows of the embedding of that name; see `make_embedding`."""
        return self.config.source_entries if name == "source_embedding" else self.config.vocab_size

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], **changes: Any) -> Self:
        """Makes a new model from a preset such as "base", or loads the model of a run or an export with its weights.

        Args:
            preset: a name in `presets.PRESETS`; or "MODEL_DIR" or "MODEL_DIR@CHECKPOINT", as for `launch.translate`.
                Without a checkpoint, the newest average is loaded, or the latest checkpoint if training has continued
                since.
            changes: model settings that replace those of a named preset, such as vocab_size=8000.

        Raises:
            InputError: `preset` is neither a preset nor a folder (the message lists the presets), the folder contains
                no model, the model belongs to a different family, or `changes` are given for a folder.
        """
        name = os.fspath(preset)
        is_folder = name not in presets.PRESETS and any(map(os.path.isdir, (name, name.rpartition("@")[0])))
        if is_folder and changes:
            raise InputError(f"{name} has its own settings; omit {', '.join(changes)}")
        if not is_folder and os.sep in name:
            raise InputError(f"{name} is neither a folder nor a preset")
        run = _runs("run").RunCheckpoint.parse(name) if is_folder else None
        config = presets.preset(name).model if run is None else _runs("run").Run(run.model_dir).config.model
        if type(config) is not cls.config_class:
            raise InputError(f"{name} is of the family {config.family}, not {cls.config_class.family}")
        if run is not None:
            return _runs("load").load_model(*run, keras.config.dtype_policy().name)[0]
        model = cls(dataclasses.replace(config, **changes))
        model.build()
        return model

    def save_to_preset(self, folder: str | os.PathLike[str], *, like: str | os.PathLike[str] | None = None) -> None:
        """Saves the model to a new folder that `from_preset` can load and, with `like`, the programs too.

        Args:
            folder: the folder to create; must be empty if it exists.
            like: a run or an export of a model with the same settings. Its vocabulary and its data and decoding
                settings are saved with the weights. Without it, the saved model handles token ids but no text.

        Raises:
            InputError: the folder is not empty, or the model of `like` has different settings.
        """
        self.ensure_built()
        _runs("load").save_model(self, folder, like)

    def build(self, input_shape: Any = None) -> None:
        if self.built:  # building again would replace every weight
            return
        for embedding in (self.target_embedding, self.source_embedding, self.output_embedding):
            if not embedding.built:
                embedding.build()
        self.build_layers()

    def ensure_built(self) -> None:
        """Builds the whole model before a part of it is called, so that the weights have their usual paths."""
        if not self.built:
            self.build()

    def build_layers(self) -> None:
        """Builds the family's layers other than the embeddings; `build` calls it once."""
        raise NotImplementedError

    def call(self, inputs: dict[str, Tensor], seed: Tensor | None = None, training: bool | None = None) -> Tensor:
        self.check_inputs(inputs)
        states = self.states(inputs, seed=seed, training=training)
        if training:  # for Keras's `fit`: a mean over tokens, like `SmoothedCrossEntropy`
            tokens = ops.sum(ops.cast(ops.not_equal(inputs["target"], PAD_ID), "float32"))
            loss = ops.cast(states.auxiliary_loss, "float32") / ops.maximum(tokens, 1.0)
            self.add_loss(ops.cast(loss, keras.config.floatx()))  # the dtype of Keras's own losses
        return self.logits(states.hidden)

    def check_inputs(self, inputs: Any) -> None:
        """Raises a ValueError if the inputs of a call are not a dict with token ids "source" and "target"."""
        if not isinstance(inputs, Mapping) or not {"source", "target"} <= inputs.keys():
            kind = f"a dict with {', '.join(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
            raise ValueError(
                f'`inputs` must be a dict with token ids "source" and "target", got {kind}; to translate sources, '
                "use t2t_keras.Translator"
            )
        for name in ("source", "target"):
            check_token_ids(inputs[name], f'inputs["{name}"]')
        sizes = [inputs[name].shape[0] for name in ("source", "target")]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ValueError(f'`inputs["source"]` has {sizes[0]} sentences, `inputs["target"]` has {sizes[1]}')

    @property
    def output_head(self) -> TiedEmbedding:
        """The projection to the vocabulary."""
        return self.output_embedding

    def logits(self, hidden: Tensor) -> Tensor:
        """Projects hidden states to logits: float [..., width] --> float32 [..., vocab]."""
        return self.output_head.logits(hidden)

    def step_products(self, capabilities: frozenset[str]) -> tuple[str, Callable[[Tensor], Tensor]]:
        """The dtype of the products in search steps, and a `logits` function with its matrix prepared in that dtype."""
        dtype = BFLOAT16 if BFLOAT16 in capabilities else self.compute_dtype
        head = self.output_head
        matrix = compute_once(f"{head.table.path}.{dtype}", lambda: head.output_matrix(dtype))  # --> [width, vocab]

        def logits(hidden: Tensor) -> Tensor:
            logits = ops.cast(kernels.linear(hidden, matrix, None), "float32")
            return logits if head.bias is None else logits + ops.cast(head.bias, "float32")

        return dtype, logits

    def source_bias(self, source: Tensor) -> Tensor:
        """The `mask_bias` that hides a source's padding: int [batch, source_len] --> float [batch, 1, source_len]."""
        return mask_bias(ops.not_equal(source, PAD_ID)[:, None], self.compute_dtype)

    def embed_targets(self, target: Tensor) -> Tensor:
        """Shifts targets right and embeds them: int [batch, target_len] --> float [batch, target_len, d_model]."""
        start = ops.zeros_like(target[:, :1])  # the start symbol is id 0
        return self.target_embedding(ops.concatenate([start, target[:, :-1]], axis=1))

    def compute_output_shape(self, input_shape: dict[str, tuple]) -> tuple:
        return (*input_shape["target"], self.config.vocab_size)

    def compute_output_spec(self, inputs: dict[str, Tensor], *_: Any, **__: Any) -> keras.KerasTensor:
        self.check_inputs(inputs)
        shapes = {name: tuple(each.shape) for name, each in inputs.items()}
        return keras.KerasTensor(self.compute_output_shape(shapes), "float32")  # for every compute dtype

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": dataclasses.asdict(self.config), **trainable_parts(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        arguments = {name: value for name, value in config.items() if name != ENTRY}
        model = cls(**{**arguments, "config": cls.config_class(**config["config"])})
        restore_trainable(model, config.get(ENTRY, {}))
        return model

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Builds the model and saves it as Keras does; raises a ValueError for HDF5, which Keras could not load."""
        if pathlib.Path(filepath).suffix in (".h5", ".hdf5"):
            raise ValueError(f"{filepath}: Keras cannot load this model from its old format; give a .keras file")
        self.ensure_built()
        super().save(filepath, *args, **kwargs)

    def export(self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", **kwargs: Any) -> None:
        """Exports the call as Keras does, from token ids to logits; `launch.export` exports translation of text.

        Raises:
            ValueError: the format is "litert" or "onnx", and it lacks an operation of the model.
        """
        ids = {name: keras.InputSpec(shape=(None, None), dtype="int32", name=name) for name in ("source", "target")}
        super().export(filepath, format, **{"input_signature": [ids], **kwargs})
        if format == "onnx":
            _check_onnx(filepath)
        if format == "litert" and "target_spec" not in kwargs:
            _check_litert(filepath)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Raises a ValueError, because Keras quantizes only its own layers."""
        raise ValueError(
            "Keras has no quantized versions of these layers; translate with --engine=ctranslate2 --compute_type=int8 "
            "or export with launch.export --weights=bfloat16"
        )


def _check_litert(path: str | os.PathLike[str]) -> None:
    """Checks a LiteRT file for operations of TensorFlow, which LiteRT's interpreter cannot load.

    If there are any, deletes the file and raises a ValueError.
    """
    file = pathlib.Path(path)
    operations = sorted({name.decode() for name in re.findall(rb"Flex(\w+)", file.read_bytes())})
    if operations:
        file.unlink()
        raise ValueError(
            f"{path}: LiteRT lacks operations of this model, {', '.join(operations)}; export to a SavedModel or, with "
            "TensorFlow's operations, set `target_spec`"
        )


def _check_onnx(path: str | os.PathLike[str]) -> None:
    """Checks an ONNX file, in which the converter may have left unknown operations.

    If the file is invalid, deletes it and raises a ValueError.
    """
    onnx = importlib.import_module("onnx")
    try:
        onnx.checker.check_model(os.fspath(path))
    except onnx.checker.ValidationError as error:
        pathlib.Path(path).unlink()
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: {reason}; use launch.convert --to=onnx, which replaces such operations") from error


def _runs(name: str) -> Any:
    """Imports a module of `t2t_keras.runs` on use: that package imports this one, and most models never need it."""
    return importlib.import_module(f"t2t_keras.runs.{name}")
