"""Models of other projects, exported: the graph that TensorFlow Serving runs translates as Python does."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow_text

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
def test_the_graph_translates_as_python_does(tmp_path, name):
    if not (program := c_program.compiled(tmp_path)):
        pytest.skip("there is no C compiler here")
    make_folder, read, libraries = MODELS[name]
    make_folder(tmp_path / "model", np.random.default_rng(1))
    model = read(tmp_path / "model")
    network = make_model(model.config.model)
    assign_weights(network, dict(model.weights))
    decode = dataclasses.replace(model.config.decode, beam_size=3, max_length_offset=4)
    translator = Translator(model.tokenizer, network, decode, model.config.data)
    config = dataclasses.replace(model.config, decode=decode)
    version = export_translator(translator, config, tmp_path / "export" / "mine")
    operations = pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops"
    paths = ":".join(str(operations / f"_{library}.so") for library in libraries)
    expected = translator.translate(TEXTS)
    found = c_program.translations(program, paths, version, [text.encode() for text in TEXTS], len(TEXTS))
    assert [text for text, _ in found] == [translation.text for translation in expected]
    np.testing.assert_allclose([s for _, s in found], [t.score for t in expected], rtol=1e-4, atol=1e-3)
    again = Translator.load(version)
    assert [t.text for t in again.translate(TEXTS)] == [t.text for t in expected]
    assert len({t.text for t in expected}) > 2
