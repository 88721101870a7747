"""Reads the settings of a preset, for benchmarks that support only the Transformer."""

import dataclasses

from t2t_keras.config import TransformerConfig


def transformer_preset(name: str) -> TransformerConfig:
    """Returns the model settings of a preset; raises SystemExit for a different family."""
    from t2t_keras.models import presets  # imports Keras, whose backend the engines choose first

    model = presets.preset(name).model
    if not isinstance(model, TransformerConfig):
        raise SystemExit(f"--preset={name} is not a Transformer")
    return model


def plain_sizes(model: TransformerConfig) -> dict[str, int]:
    """Returns the sizes for the networks of other libraries; raises SystemExit for settings that they lack."""
    sizes = {name: getattr(model, name) for name in ("d_model", "d_ff", "num_heads")}
    num_layers = model.num_encoder_layers
    plain = TransformerConfig(**sizes, num_encoder_layers=num_layers, num_decoder_layers=num_layers)
    same = ("vocab_size", "dropout_rate", "norm_position")  # the position of norms does not change the time
    plain = dataclasses.replace(plain, **{name: getattr(model, name) for name in same})
    others = [name for name, value in dataclasses.asdict(plain).items() if getattr(model, name) != value]
    if others:
        raise SystemExit(f"the engines of this benchmark do not support {', '.join(others)}, which the preset sets")
    return {**sizes, "num_layers": num_layers}
