"""The settings of a preset, for benchmarks that know the Transformer alone."""

import dataclasses

from t2t_keras.config import TransformerConfig


def transformer_preset(name: str) -> TransformerConfig:
    """The settings of the preset's model; ends the program where it is of another family."""
    from t2t_keras.models import presets  # Keras: the engines choose its backend before they import it

    model = presets.preset(name).model
    if not isinstance(model, TransformerConfig):
        raise SystemExit(f"--preset={name} is no Transformer")
    return model


def plain_sizes(model: TransformerConfig) -> dict[str, int]:
    """The sizes that the networks of other libraries are made with; ends the program where they are not all."""
    sizes = {name: getattr(model, name) for name in ("d_model", "d_ff", "num_heads")}
    num_layers = model.num_encoder_layers
    plain = TransformerConfig(**sizes, num_encoder_layers=num_layers, num_decoder_layers=num_layers)
    same = ("vocab_size", "dropout_rate", "norm_position")  # where the norm is, it takes as long
    plain = dataclasses.replace(plain, **{name: getattr(model, name) for name in same})
    others = [name for name, value in dataclasses.asdict(plain).items() if getattr(model, name) != value]
    if others:
        raise SystemExit(f"the engines of this benchmark have no {', '.join(others)}, which the preset sets")
    return {**sizes, "num_layers": num_layers}
