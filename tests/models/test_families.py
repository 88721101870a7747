"""Families of models by name: their settings and their models."""

import dataclasses
import re
from typing import ClassVar

import pytest

from t2t_keras.config import Config, ModelConfig, TransformerConfig, differences, override
from t2t_keras.config import model_config as registry
from t2t_keras.errors import InputError
from t2t_keras.models import families
from t2t_keras.models.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class WideConfig(ModelConfig):
    """A family that only exists in this test."""

    family: ClassVar[str] = "wide"

    width: int = 3

    def parameter_counts(self):
        return {"all": self.width}

    def training_flops(self, length):
        return {"matrices": 6 * self.width}

    def kept_activations(self, length):
        return registry.Activations(self.width, 0)


@pytest.fixture
def wide(monkeypatch):
    """Registers the family during a test; its model only stores its configuration."""

    class Wide:
        def __init__(self, config):
            self.config, self.built = config, False

        def build(self):
            self.built = True

    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    monkeypatch.setattr(families, "_MODELS", dict(families._MODELS))
    families.register(WideConfig, Wide)
    return Wide


def test_the_default_family_is_the_transformer():
    assert Config.from_dict({"model": {"d_ff": 64}}).model == TransformerConfig(d_ff=64)
    assert Config().to_dict()["model"]["family"] == "transformer"


def test_a_custom_family(wide):
    config = Config(model=WideConfig(vocab_size=9, width=4))
    sizes = {"vocab_size": 9, "d_model": 512, "width": 4, "source_vocab_size": None}
    assert config.to_dict()["model"] == {"family": "wide", **sizes}
    assert Config.from_dict(config.to_dict()) == config
    model = families.make_model(config.model)
    assert isinstance(model, wide) and model.built and model.config == config.model
    assert config.model.sizes() == {"vocab_size": "9", "d_model": "512", "width": "4"}


@pytest.mark.parametrize("settings", [["model.family=wide", "model.width=7"], ["model.width=7", "model.family=wide"]])
def test_changing_the_family_keeps_only_the_vocabulary(wide, settings):
    before = Config(model=TransformerConfig(vocab_size=11, d_model=8, num_heads=2, source_vocab_size=9))
    after = override(before, settings)
    assert after.model == WideConfig(vocab_size=11, width=7, source_vocab_size=9)
    assert differences(before, after) == ["model.family: 'transformer' -> 'wide'"]
    assert override(after, ["model.family=wide", "model.d_model=6"]).model == WideConfig(11, 6, 7, source_vocab_size=9)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("model.family=deep", "unknown model.family 'deep'; valid: .*, transformer, wide, and"),
        (
            "model.num_heads=2",
            "unknown setting model.num_heads; valid: model.vocab_size, model.d_model, .*model.width",
        ),
        ("model.width=x", "model.width must be a whole number, got 'x'"),
        ("model.d_model=0", "model.d_model must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_settings_are_rejected(wide, setting, complaint):
    with pytest.raises(InputError) as error:
        override(Config(model=WideConfig()), [setting])
    assert re.match(complaint, str(error.value))


def test_a_family_can_be_registered_once(wide):
    families.register(WideConfig, wide)  # a module that is imported again

    @dataclasses.dataclass(frozen=True)
    class OtherConfig(WideConfig):
        pass

    with pytest.raises(ValueError, match="'wide' is already registered, by .*test_families"):
        families.register(OtherConfig, wide)


def test_make_model_builds_the_transformer_from_its_configuration():
    config = TransformerConfig(vocab_size=9, num_encoder_layers=1, num_decoder_layers=1, d_model=8, d_ff=8, num_heads=2)
    model = families.make_model(config)
    assert isinstance(model, Transformer) and model.count_params() == sum(config.parameter_counts().values())
    assert model.output_head.table is model.target_embedding.table and model.output_head.bias is None


@pytest.mark.parametrize("family", registry._FAMILIES)
def test_the_configuration_class_is_found_by_the_name_of_the_family(family):
    config_class = registry.model_config_class(family)
    assert config_class.family == family and type(override(Config(), [f"model.family={family}"]).model) is config_class
