"""A model of this project as a directory that CTranslate2 loads.

    python -m benchmarks.ctranslate2_model WEIGHTS.npz MODEL.json DIRECTORY

The weights are arrays under the names of `t2t_keras.models.weights.weight_names`, with the
position tables "source_positions/table" and "target_positions/table" whether
learned or not; MODEL.json holds the fields of `t2t_keras.config.TransformerConfig`. Needs NumPy and
CTranslate2, and neither this project's package nor TensorFlow.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]

SPECIAL = ("<pad>", "</s>", "<unk>")  # ids 0, 1 and 2


def vocabulary(size: int) -> list[str]:
    """A name for each id: the sentences that are measured come as ids, but CTranslate2 takes names."""
    return [*SPECIAL, *map(str, range(len(SPECIAL), size))][:size]


def variables(weights: Arrays, model: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights under CTranslate2's names and in its layout.

    Kernels are [out, in] there; the projections of one sequence are one: queries,
    keys and values of self-attention, keys and values of the memory.

    Args:
        weights: see above.
        model: see above.

    Raises:
        ValueError: sizes that CTranslate2 has no place for.
    """
    d_head = model["d_model"] // model["num_heads"]
    if (model["d_key"] or d_head, model["d_value"] or d_head) != (d_head, d_head):
        raise ValueError(f"heads must be d_model / num_heads = {d_head} wide")
    found = {}
    for stack, attentions in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
        for index in range(model[f"num_{stack}_layers"]):
            layer, place = f"{stack}/layer_{index}", f"{stack}/layer_{index}"
            for kind in attentions:
                name = "self_attention" if kind == "self" else "attention"
                found |= _attention(weights, f"{layer}/{kind}_attention", f"{place}/{name}")
            found |= _norm(weights, f"{layer}/feed_forward_residual/norm", f"{place}/ffn/layer_norm")
            for number, part in enumerate(("inner", "outer")):
                found |= _linear(weights, [f"{layer}/feed_forward/{part}"], f"{place}/ffn/linear_{number}")
        if model["norm_position"] == "pre":
            found |= _norm(weights, f"{stack}/final_norm", f"{stack}/layer_norm")
    table = weights["target_embedding/table"]
    found["encoder/embeddings_0/weight"] = weights.get("source_embedding/table", table)
    found["decoder/embeddings/weight"] = table
    found["decoder/projection/weight"] = weights.get("output_embedding/table", table)
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        found[f"{stack}/position_encodings/encodings"] = weights[f"{side}_positions/table"]
    return found


def _attention(weights: Arrays, name: str, place: str) -> dict[str, np.ndarray]:
    groups = [["query", "key", "value"]] if name.endswith("self_attention") else [["query"], ["key", "value"]]
    found = _norm(weights, f"{name}_residual/norm", f"{place}/layer_norm")
    for number, group in enumerate([*groups, ["output"]]):
        found |= _linear(weights, [f"{name}/{part}" for part in group], f"{place}/linear_{number}")
    return found


def _linear(weights: Arrays, names: list[str], place: str) -> dict[str, np.ndarray]:
    """Projections of one input as one."""
    kernel = np.concatenate([weights[f"{name}_kernel"] for name in names], axis=1)  # --> [in, out]
    found = {f"{place}/weight": np.ascontiguousarray(kernel.T)}
    if f"{names[0]}_bias" in weights:
        found[f"{place}/bias"] = np.concatenate([weights[f"{name}_bias"] for name in names])
    return found


def _norm(weights: Arrays, name: str, place: str) -> dict[str, np.ndarray]:
    return {f"{place}/gamma": weights[f"{name}/scale"], f"{place}/beta": weights[f"{name}/offset"]}


def write(weights: Arrays, model: Mapping[str, Any], directory: str) -> None:
    """Writes the directory.

    Args:
        weights: see above.
        model: see above.
        directory: made as needed.
    """
    from ctranslate2.specs import model_spec, transformer_spec

    spec = transformer_spec.TransformerSpec.from_config(
        (model["num_encoder_layers"], model["num_decoder_layers"]),
        model["num_heads"],
        pre_norm=model["norm_position"] == "pre",
    )
    for name, array in variables(weights, model).items():
        scope, _, attribute = name.rpartition("/")
        setattr(model_spec.index_spec(spec, scope), attribute, np.asarray(array, np.float32))
    spec.decoder.start_from_zero_embedding = True  # the start symbol is padding, which embeds to zero
    spec.config.decoder_start_token, spec.config.eos_token, spec.config.unk_token = SPECIAL
    spec.config.layer_norm_epsilon = model["layer_norm_epsilon"]
    names = vocabulary(model["vocab_size"])
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize()  # one copy of what is shared
    os.makedirs(directory, exist_ok=True)
    spec.save(directory)


def main() -> None:
    """Converts."""
    weights_path, model_path, directory = sys.argv[1:]
    with open(model_path) as file:
        model = json.load(file)
    with np.load(weights_path) as weights:
        write(dict(weights), model, directory)


if __name__ == "__main__":
    main()
