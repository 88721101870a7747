"""The Transformer does what Keras users expect of a model, or names an alternative."""

import json

import keras
import numpy as np
import pytest

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.presets import preset
from t2t_keras.models.transformer import Transformer
from t2t_keras.runs.load import load_model
from t2t_keras.runs.run import Run
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.trainer import Trainer
from tests.training import tiny_training

SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")
INPUTS = {"source": SOURCE, "target": TARGET}


@pytest.fixture
def model() -> Transformer:
    return Transformer.from_preset("tiny", vocab_size=13, **SIZES)


def compile_model(model: Transformer) -> Transformer:
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.1), jit_compile=False)
    return model


def test_a_model_is_built_before_it_is_saved(tmp_path):
    model = Transformer(TransformerConfig(vocab_size=13, **SIZES))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))
    model = Transformer(TransformerConfig(vocab_size=13, **SIZES))
    model.save_to_preset(tmp_path / "preset")
    np.testing.assert_array_equal(Transformer.from_preset(tmp_path / "preset")(INPUTS), model(INPUTS))


def test_models_that_keras_cannot_load_are_not_saved(model, tmp_path):
    with pytest.raises(ValueError, match=r"model\.h5: .+ give a \.keras file"):
        model.save(tmp_path / "model.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("inputs", "received"),
    [({"source": SOURCE}, "a dict with source"), (SOURCE, "EagerTensor"), ((SOURCE, TARGET), "tuple")],
)
def test_the_error_for_invalid_inputs_names_the_expected_ones(model, inputs, received):
    with pytest.raises(ValueError, match=f'"source" and "target", got {received}; .+ use t2t_keras.Translator'):
        model(inputs)


def test_quantization_is_rejected(model):
    with pytest.raises(ValueError, match="--engine=ctranslate2 --compute_type=int8"):
        model.quantize("int8")


def test_a_saved_preset_restores_the_model(model, tmp_path):
    model.encoder.trainable = False
    model.save_to_preset(tmp_path / "mine")
    for name in (tmp_path / "mine", f"{tmp_path}/mine@imported"):
        loaded = Transformer.from_preset(name)
        assert loaded.config == model.config
        np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))
    with pytest.raises(InputError, match="mine already exists"):
        model.save_to_preset(tmp_path / "mine")
    with pytest.raises(InputError, match="config.json does not belong to a training"):
        Run(tmp_path / "mine").check_trainable()


def test_invalid_presets_are_rejected(model, tmp_path):
    with pytest.raises(InputError, match="runs/none is neither a folder nor a preset"):
        Transformer.from_preset("runs/none")
    with pytest.raises(InputError, match="has no config.json"):
        Transformer.from_preset(tmp_path)
    model.save_to_preset(tmp_path / "mine")
    with pytest.raises(InputError, match="mine has its own settings; omit d_model, d_ff"):
        Transformer.from_preset(tmp_path / "mine", d_model=32, d_ff=64)
    with pytest.raises(InputError, match="no checkpoint '7' .+ names there: imported"):
        Transformer.from_preset(f"{tmp_path}/mine@7")
    other = Transformer.from_preset("tiny", vocab_size=14, **SIZES)
    with pytest.raises(InputError, match="mine has a model with different settings"):
        other.save_to_preset(tmp_path / "other", like=tmp_path / "mine")


def test_a_run_of_a_different_family_is_rejected(tmp_path):
    config = preset("conv_tiny")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()), "utf-8")
    with pytest.raises(InputError, match="is of the family conv_s2s, not transformer"):
        Transformer.from_preset(tmp_path)


@pytest.mark.integration
def test_a_run_can_be_converted_to_keras_and_back(tmp_path):
    data = tiny_training.make_data(tmp_path)
    config = tiny_training.make_config(data, max_steps=4)
    Trainer(Run(tmp_path / "run"), config, data, make_strategy("cpu")).train()
    model = Transformer.from_preset(tmp_path / "run")
    np.testing.assert_array_equal(model(INPUTS), load_model(tmp_path / "run")[0](INPUTS))
    compile_model(model).fit(INPUTS, TARGET, epochs=2, verbose=0)
    model.save_to_preset(tmp_path / "tuned", like=tmp_path / "run")
    assert len(Translator.load(tmp_path / "tuned").translate(["ba do", "ge"])) == 2
    stored = json.loads((tmp_path / "tuned/config.json").read_text("utf-8"))
    assert Config.from_dict({name: stored[name] for name in Config().to_dict()}) == config
    np.testing.assert_array_equal(Transformer.from_preset(tmp_path / "tuned")(INPUTS), model(INPUTS))
