"""Exports of converted models: the graph translates like Python."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.export.writing import export_translator
from t2t_keras.formats import huggingface, tensor2tensor
from t2t_keras.inference.translator import Translator
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from tests.export import c_program
from tests.formats import huggingface_folder, test_tensor2tensor

TEXTS = ["Two dogs in the snow", "the dogs, the 漢 dog.", " the  dog_12 \\ ", "½", ""]
MODELS = {
    "huggingface": (huggingface_folder.make_folder, huggingface.read, ["sentencepiece_tokenizer"]),
    "tensor2tensor": (
        test_tensor2tensor.make_folder,
        tensor2tensor.read,
        ["wordpiece_tokenizer", "regex_split_ops"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_graph_translates_like_python(tmp_path, name):
    make_folder, read, libraries = MODELS[name]
    make_folder(tmp_path / "model", np.random.default_rng(1))
    model = read(tmp_path / "model")
    network = make_model(model.config.model)
    assign_weights(network, dict(model.weights))
    decode = dataclasses.replace(model.config.decode, beam_size=3, max_length_offset=4)
    translator = Translator(model.tokenizer, network, decode, model.config.data)
    config = dataclasses.replace(model.config, decode=decode)
    version = export_translator(translator, config, tmp_path / "export" / "mine")
    expected = [translation.text for translation in translator.translate(TEXTS)]
    assert [translation.text for translation in Translator.load(version).translate(TEXTS)] == expected
    c_program.assert_same_translations(tmp_path, version, translator, TEXTS, len(TEXTS), libraries)
    assert len(set(expected)) > 2
