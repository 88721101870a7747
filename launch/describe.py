"""Prints a model as a table: sizes, parameters, training FLOPs a token, memory. Makes no model.

Example:
    python -m launch.describe --preset=big --vocab_size=37000 --set model.tie_embeddings=false
"""

from absl import flags

from t2t_keras import config as configuration
from t2t_keras import presets
from t2t_keras.describe import describe
from t2t_keras.run import Run

from . import program

_PRESET = flags.DEFINE_string("preset", "base", f"Sizes and recipe: {', '.join(presets.PRESETS)}.")
_MODEL_DIR = flags.DEFINE_string("model_dir", None, "A run's directory, whose model to describe instead.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", None, "Entries of the vocabulary; default: the preset's.")
_SET = flags.DEFINE_multi_string("set", [], "section.field=value, any number of times.")
_LENGTH = flags.DEFINE_integer("length", 32, "Tokens of a sentence, for the cost of attention.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Prints what the flags name.

    Raises:
        InputError: an unknown preset, a bad setting, or no run in --model_dir.
    """
    del argv  # every setting is a flag
    config = Run(_MODEL_DIR.value).config if _MODEL_DIR.value else presets.preset(_PRESET.value)
    vocabulary = [] if _VOCAB_SIZE.value is None else [f"model.vocab_size={_VOCAB_SIZE.value}"]
    print(describe(configuration.override(config, [*vocabulary, *_SET.value]), _LENGTH.value))


def run() -> None:
    """The console command."""
    program.run(main)


if __name__ == "__main__":
    run()
