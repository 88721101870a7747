"""The settings of a new run on prepared data."""

import json

import pytest

from t2t_keras import PreparedData, make_config
from t2t_keras.errors import InputError
from t2t_keras.models.presets import preset
from tests.training import tiny_training


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    """Data whose lines have several sentences."""
    folder = tiny_training.make_data(tmp_path_factory.mktemp("new_config")).directory
    record = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    (folder / "data.json").write_text(json.dumps({**record, "split": "lines"}), encoding="utf-8")
    return PreparedData.open(folder)


def test_a_small_preset_gets_the_limit_of_the_text_and_a_paper_one_keeps_its_own(data):
    tiny, base = (make_config(name, data) for name in ("tiny", "base"))
    assert data.output_limit.items() <= vars(tiny.decode).items()
    assert tiny.decode.length_limit != base.decode.length_limit == preset("base").decode.length_limit
    for config in (tiny, base):
        assert config.decode.split == "lines"
        assert config.model.vocab_size == data.tokenizer.vocab_size and config.data == data.config


def test_settings_override_the_defaults(data):
    settings = ["decode.max_length_offset=7", "decode.split=sentences", "train.max_steps=3"]
    config = make_config("tiny", data, settings)
    assert (config.decode.max_length_factor, config.decode.max_length_offset) == (1.0, 7)
    assert config.decode.split == "sentences" and config.train.max_steps == 3


@pytest.mark.parametrize("setting", ["data.seed=3", "model.vocab_size=3", "train.depth=3"])
def test_settings_of_the_data_cannot_be_changed(data, setting):
    with pytest.raises(InputError, match=setting.partition("=")[0]):
        make_config("tiny", data, [setting])
