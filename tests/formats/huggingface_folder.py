"""An artificial Marian model in the format of transformers."""

import json
import pathlib

import numpy as np

from t2t_keras.formats.files.tensor_files import write_safetensors
from tests.formats import foreign
from tests.formats.foreign import D_FF, D_MODEL, HEADS, LAYERS

UNNAMED = 2  # pieces of source.spm that vocab.json lacks
SETTINGS = {
    "model_type": "marian",
    "d_model": D_MODEL,
    **{f"{stack}_layers": LAYERS for stack in ("encoder", "decoder")},
    **{f"{stack}_attention_heads": HEADS for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": D_FF for stack in ("encoder", "decoder")},
    "activation_function": "swish",
    "scale_embedding": True,
    "eos_token_id": 0,
    "num_beams": 6,
    "length_penalty": 1.0,
}


def names() -> list[str]:
    """Returns the entries of vocab.json in their order."""
    pieces = dict.fromkeys([*foreign.pieces("de"), *foreign.pieces("en")[:-UNNAMED]])
    return ["</s>", "<unk>", *pieces, ">>deu<<", "<pad>"]


def make_folder(folder: pathlib.Path, rng: np.random.Generator, **settings) -> dict[str, np.ndarray]:
    """Writes a model; returns its tensors."""
    size = len(names())
    tensors = {"model.shared.weight": foreign.random_array(rng, size, D_MODEL)}
    tensors["model.shared.weight"][-1] = 0
    tensors["final_logits_bias"] = foreign.random_array(rng, 1, size)
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for place in (f"model.{stack}.layers.{number}" for number in range(LAYERS)):
            linear = {
                f"{name}.{part}_proj": (D_MODEL, D_MODEL) for name in attentions for part in ("q", "k", "v", "out")
            }
            linear |= {"fc1": (D_FF, D_MODEL), "fc2": (D_MODEL, D_FF)}
            for name, shape in linear.items():
                tensors[f"{place}.{name}.weight"] = foreign.random_array(rng, *shape)
                tensors[f"{place}.{name}.bias"] = foreign.random_array(rng, shape[0])
            for name in (*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"):
                tensors[f"{place}.{name}.weight"] = 1 + foreign.random_array(rng, D_MODEL)
                tensors[f"{place}.{name}.bias"] = foreign.random_array(rng, D_MODEL)
    special = {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SETTINGS, **special, **settings}))
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names())}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    (folder / "source.spm").write_bytes(foreign.unigram("en"))
    (folder / "target.spm").write_bytes(foreign.unigram("de"))
    write_safetensors(folder / "model.safetensors", tensors)
    return tensors


def to_their_ids(ids: list[int]) -> list[int]:
    """Converts this project's ids; pieces that vocab.json lacks become the unknown token."""
    size = len(names())
    return [{0: size - 1, 1: 0, 2: 1}.get(number, number - 1 if number < size else 1) for number in ids]
