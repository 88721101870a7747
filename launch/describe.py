"""Prints a table of a model's sizes, parameters, training FLOPs per token and memory, without building the model.

With --devices, it also prints the time, traffic, memory and disk space that training takes on this number of devices.

Examples:
    python -m launch.describe --preset=big --vocab_size=37000 --set model.tie_embeddings=false
    python -m launch.describe --preset=big --devices=8 --device=h100 --pairs=4500000 --set train.mixed_bfloat16=true
"""

from absl import flags

from t2t_keras import config as configuration
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.planning.forecast import KINDS, USUAL_UTILISATION, Devices, forecast
from t2t_keras.planning.size import describe
from t2t_keras.runs.run import Run
from t2t_keras.values import NonNegativeInt, PositiveFloat, PositiveInt, Share

from . import program
from .flag_groups import extensions
from .flag_types import FOLDER, DEFINE_number, DEFINE_path

_PRESET = flags.DEFINE_string(
    "preset", "base", f"Sizes of the model and training recipe: {', '.join(presets.PRESETS)}."
)
_MODEL_DIR = DEFINE_path("model_dir", None, "The directory of a run whose model is described instead.", FOLDER)
_VOCAB_SIZE = DEFINE_number("vocab_size", None, "Entries of the vocabulary; default: the preset's.", PositiveInt)
_SET = flags.DEFINE_multi_string("set", [], "Overrides a setting: section.field=value.")
_LENGTH = DEFINE_number("length", 32, "Tokens per sentence, for the cost of attention.", PositiveInt)
_DEVICES = DEFINE_number("devices", 0, "Number of devices; adds the cost of training on them.", NonNegativeInt)
_DEVICE = flags.DEFINE_enum("device", "a100", KINDS, "The kind of the devices; other flags override individual values.")
_UTILISATION = DEFINE_number("utilisation", USUAL_UTILISATION, "The share of the peak that training reaches.", Share)
_PEAK_TFLOPS = DEFINE_number("peak_tflops", None, "The peak of a device, in TFLOP/s.", PositiveFloat)
_LINK_GBYTES = DEFINE_number("link_gbytes", None, "The rate at which a device sends, in GB/s.", PositiveFloat)
_PAIRS = DEFINE_number("pairs", 0, "Pairs of training data; 0 omits the data.", NonNegativeInt)
flags.adopt_module_key_flags(extensions)


def main(argv: list[str]) -> None:
    """Prints the tables."""
    if _MODEL_DIR.value and _PRESET.present:
        raise InputError("give either --preset or --model_dir, not both")
    for flag in (_DEVICE, _UTILISATION, _PEAK_TFLOPS, _LINK_GBYTES, _PAIRS):
        if flag.present and not _DEVICES.value:
            raise InputError(f"--{flag.name} requires --devices")
    config = Run(_MODEL_DIR.value).config if _MODEL_DIR.value else presets.preset(_PRESET.value)
    vocabulary = [] if _VOCAB_SIZE.value is None else [f"model.vocab_size={_VOCAB_SIZE.value}"]
    config = configuration.override(config, [*vocabulary, *_SET.value])
    print(describe(config, _LENGTH.value))
    if _DEVICES.value:
        numbers = dict(KINDS[_DEVICE.value])
        if _PEAK_TFLOPS.value is not None:
            numbers |= dict.fromkeys(("flops", "float32_flops"), _PEAK_TFLOPS.value * 1e12)
        if _LINK_GBYTES.value is not None:
            numbers["link_rate"] = _LINK_GBYTES.value * 1e9
        devices = Devices(_DEVICE.value, _DEVICES.value, utilisation=_UTILISATION.value, **numbers)
        print()
        print(forecast(config, devices, _LENGTH.value, _PAIRS.value))


run = program.command(main)
