"""The settings of a preset, for benchmarks that know the Transformer alone."""

from t2t_keras.config import TransformerConfig


def transformer_preset(name: str) -> TransformerConfig:
    """The settings of the preset's model; ends the program where it is of another family."""
    from t2t_keras.models import presets  # Keras: the engines choose its backend before they import it

    model = presets.preset(name).model
    if not isinstance(model, TransformerConfig):
        raise SystemExit(f"--preset={name} is no Transformer")
    return model
