"""The examples in docs/change_the_model.md train, search and translate."""

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
from collections.abc import Iterator
from unittest import mock

import keras
import numpy as np
import pytest

from t2t_keras.config import Config, DecodeConfig
from t2t_keras.config import model_config as registry
from t2t_keras.errors import InputError
from t2t_keras.formats.known_formats import WRITERS
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.inference import ctranslate2_engine
from t2t_keras.models import families, presets
from tests import programs
from tests.programs import run_cases
from tests.training import tiny_training

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs/change_the_model.md"
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
USES = re.findall(r"^```python\n(import .*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
SIZES = {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout_rate": 0}


@pytest.fixture(scope="module", params=sorted(BLOCKS))
def example_file(request, tmp_path_factory) -> Iterator[pathlib.Path]:
    """The file of an example, registered while it is tested."""
    file = tmp_path_factory.mktemp("pasted") / f"{request.param}.py"
    file.write_text(BLOCKS[request.param], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    with mock.patch.dict(registry._FAMILIES), mock.patch.dict(families._MODELS), mock.patch.dict(presets.PRESETS):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        yield file


@pytest.fixture(scope="module")
def model(example_file):
    config = presets.preset(f"{example_file.stem}_tiny").model
    return families.make_model(type(config)(**SIZES, vocab_size=23, norm_position="pre"))


def test_documented_changes() -> None:
    assert sorted(BLOCKS) == ["gated", "rotary"]


@pytest.mark.parametrize("changes", [{"num_experts": 8}, {"attention_window": 2}, {"position_encoding": "learned"}])
def test_unsupported_settings_are_rejected(model, changes) -> None:
    (name,) = changes
    lacks_it = (name == "num_experts") == (model.config.family == "gated")
    with pytest.raises(InputError, match=f"model.{name}") if lacks_it else contextlib.nullcontext():
        dataclasses.replace(model.config, **changes)


def test_model_survives_saving_and_loading_with_keras(model, tmp_path) -> None:
    inputs = {"source": np.array([[5, 6, 1]]), "target": np.array([[7, 1]])}
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(inputs), model(inputs))


def test_parameter_counts_of_settings_and_model_agree(model) -> None:
    assert model.count_params() == sum(model.config.parameter_counts().values())
    paths = [variable.path for variable in model.trainable_variables]
    assert len(set(paths)) == len(paths)


def test_outputs_depend_on_the_order_of_the_source(model) -> None:
    one, other = (np.asarray(model.encode(np.array([ids])))[0] for ids in ([3, 4, 5, 1], [4, 3, 5, 1]))
    assert np.abs(one[[1, 0, 2, 3]] - other).max() > 1e-3


def test_search_steps_equal_the_forward_pass(model) -> None:
    source = np.array([[3, 4, 5, 6, 1], [7, 8, 1, 0, 0]])
    target = np.random.default_rng(1).integers(3, 23, [4, 6])  # two hypotheses a sentence
    expected = np.asarray(model({"source": np.repeat(source, 2, axis=0), "target": target}))
    step, cache = model.start_search(source, model.encode(source), 2)
    tokens = np.zeros(4, "int32")
    for position in range(6):
        logits, cache = step(tokens, cache)
        np.testing.assert_allclose(logits, expected[:, position], rtol=1e-4, atol=1e-5)
        tokens = target[:, position]


def test_other_engines_and_formats_reject_the_model(model, tmp_path) -> None:
    family = f"a model of the family {model.config.family}"
    assert ctranslate2_engine.unsupported(model, DecodeConfig(), [], None) == family
    unconverted = PortableModel(Config(model=model.config), {}, mock.Mock())
    for writer in WRITERS.values():
        with pytest.raises(InputError, match=family):
            writer(unconverted, tmp_path, "float32")


def test_attention_works_in_a_stack_of_layers(tmp_path) -> None:
    (code,) = USES
    (tmp_path / "rotary.py").write_text(BLOCKS["rotary"], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = programs.run(["-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "(1, 3, 64)\n"), result.stderr


def test_changed_models_train_and_translate(example_file) -> None:
    data, extension = tiny_training.make_data(example_file.parent), f"--extension={example_file}"
    run = f"--model_dir={example_file.parent / 'run'}"
    settings = [f"--set=model.{name}={value}" for name, value in SIZES.items()]
    settings += [f"--set=train.{name}={value}" for name, value in tiny_training.TRAIN.items()]
    flags = [extension, run, f"--data_dir={data.directory}", f"--preset={example_file.stem}_tiny", *settings]
    ((status, _, error),) = run_cases("launch.train", [(flags, b"")])
    assert status == 0, error
    ((status, output, error),) = run_cases("launch.translate", [([extension, run], b"ba do\nge\n")])
    assert status == 0 and len(output.splitlines()) == 2, error
