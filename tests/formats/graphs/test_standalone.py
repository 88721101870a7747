"""Graphs for ONNX and LiteRT, and the stand-alone program for them, which does not use TensorFlow."""

import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats.graphs import litert, onnx, standalone
from t2t_keras.formats.graphs.token_graphs import TokenGraphs
from t2t_keras.formats.known_formats import WRITERS
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.repair import lowercased, repair
from t2t_keras.text.truecase import capitalised
from tests.formats import foreign
from tests.inference import tiny

pytestmark = pytest.mark.integration

PACKAGES = {"onnx": ["tf2onnx", "onnxruntime"], "litert": ["ai_edge_litert"]}
FORMATS = pytest.mark.parametrize("format", PACKAGES)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Callable[..., pathlib.Path]:
    """Returns a function that writes a small trained model in a format and returns the directory."""

    @functools.cache
    def write(format: str, numbers: str = "float32") -> pathlib.Path:
        for package in PACKAGES[format]:
            pytest.importorskip(package)
        folder = tmp_path_factory.mktemp(format)
        assert WRITERS[format](foreign.trained(), folder, numbers) == ()
        return folder

    return write


class UnconvertedGraphs:
    """The functions of the graph before the conversion, with the interface of the converted ones."""

    def __init__(self, model: PortableModel) -> None:
        graphs = TokenGraphs(model, "no format", in_one_file=True)
        self._encode, self._step = graphs.encode, graphs.step
        self._names = [spec.name for spec in graphs.step.input_signature]
        specs = {spec.name: spec.shape for spec in graphs.step.input_signature}
        self.past = {name: (shape[1], shape[3]) for name, shape in specs.items() if name.startswith(("keys", "values"))}

    def encode(self, source_ids):
        return {name: tensor.numpy() for name, tensor in self._encode(source_ids).items()}

    def step(self, **inputs):
        outputs = self._step(*(inputs[name] for name in self._names))
        return {name: tensor.numpy() for name, tensor in outputs.items()}


@functools.cache
def trained_graphs() -> UnconvertedGraphs:
    return UnconvertedGraphs(foreign.trained())


def search(
    graphs: standalone.Graphs, model: PortableModel, texts: Sequence[str] = foreign.TEXTS_TO_COPY, **changes
) -> list[str]:
    settings = {name: getattr(model.config.decode, name) for name in standalone.SETTINGS} | changes
    ids = [[*model.tokenizer.source.encode(text), EOS_ID] for text in texts]
    return [" ".join(model.tokenizer.decode(standalone.search(graphs, source, settings)[0]).split()) for source in ids]


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_position": "pre"},
        {"position_encoding": "learned", "max_positions": 40},
        {"tie_embeddings": False, "use_output_bias": True, "activation": "swish"},
        {"d_key": 8, "d_value": 12},
    ],
    ids=["pre-norm", "learned", "untied", "widths"],
)
def test_steps_equal_the_network(changes):
    config = TransformerConfig(**{**tiny.MODEL, "vocab_size": 23, **changes})
    model = PortableModel(Config(config), foreign.random_weights(config), tiny.tokenizer())
    graphs, source, target = UnconvertedGraphs(model), [5, 3, 9, 1], [7, 2, 4, 1]
    padded = np.array([[*source, 0, 0], [8, 8, 8, 8, 8, 1]], np.int32)
    memory = graphs.encode(source_ids=padded)
    past = {name: np.full((2, heads, 9, width), 7.0, np.float32) for name, (heads, width) in graphs.past.items()}
    expected = foreign.logits(model, source, target)
    expected = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    for position, token in enumerate([0, *target[:-1]]):
        outputs = graphs.step(token_ids=np.array([token] * 2, np.int32), position=np.int32(position), **memory, **past)
        np.testing.assert_allclose(outputs["log_probs"][0], expected[position], rtol=1e-4, atol=1e-4)
        for name, array in past.items():
            assert outputs[f"new_{name}"].shape == (2, array.shape[1], 1, array.shape[3])
            array[:, :, position] = outputs[f"new_{name}"][:, :, 0]


@FORMATS
def test_converted_steps_equal_the_network(tmp_path, format):
    for package in PACKAGES[format]:
        pytest.importorskip(package)
    changes = {"activation": "gelu", "use_output_bias": True, "source_vocab_size": 19, "tie_embeddings": False}
    config = TransformerConfig(**{**tiny.MODEL, "vocab_size": 23, **changes})
    model = PortableModel(Config(config), foreign.random_weights(config), tiny.tokenizer())
    WRITERS[format](model, tmp_path, "float32")
    graphs, source, targets = standalone.load_graphs(tmp_path), [5, 3, 18, 1], [7, 22]
    memory = graphs.encode(source_ids=np.array([source], np.int32))
    past = {name: np.zeros((1, heads, 5, width), np.float32) for name, (heads, width) in graphs.past.items()}
    expected = foreign.logits(model, source, targets)
    expected = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    for position, token in enumerate([0, targets[0]]):
        scalar = np.array(position, np.int32)
        outputs = graphs.step(token_ids=np.array([token], np.int32), position=scalar, **memory, **past)
        np.testing.assert_allclose(outputs["log_probs"][0], expected[position], rtol=1e-4, atol=1e-4)
        for name, array in past.items():
            array[:, :, position] = outputs[f"new_{name}"][:, :, 0]


@FORMATS
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_search_equals_the_translator(model_folder, format, beam_size):
    model = foreign.trained()
    graphs = standalone.load_graphs(model_folder(format))
    settings = {"beam_size": beam_size}
    ours = [one.text for one in foreign.make_translator(model, **settings).translate(foreign.TEXTS_TO_COPY)]
    assert search(graphs, model, **settings) == ours
    assert len(set(ours)) > 40


@pytest.mark.parametrize(
    "changes",
    [
        {"length_normalization": "gnmt", "length_penalty": 2.0, "ends_within_beam": False},
        {"length_normalization": "average", "min_length": 9},
        {"max_length_offset": 1, "max_length_factor": 0.3},
        {"length_normalization": "average", "patience": 0.5},
        {"length_normalization": "gnmt", "beam_size": 1, "ends_within_beam": False},
        pytest.param({"length_normalization": "average", "beam_size": 1}, marks=pytest.mark.slow),
    ],
    ids=["gnmt", "average", "short", "patience", "greedy", "greedy average"],
)
def test_the_search_follows_the_settings(changes):
    model, texts = foreign.trained(), foreign.TEXTS_TO_COPY[::3]
    ours = [one.text for one in foreign.make_translator(model, **changes).translate(texts)]
    assert search(trained_graphs(), model, texts, **changes) == ours and len({*ours}) > 10


@pytest.mark.parametrize(
    "format, numbers", [("onnx", "int8"), ("litert", "int8"), pytest.param("litert", "float16", marks=pytest.mark.slow)]
)
def test_low_precision_gives_mostly_the_same_outputs(model_folder, format, numbers):
    folders = [model_folder(format), model_folder(format, numbers)]
    full, actual = (search(standalone.load_graphs(folder), foreign.trained()) for folder in folders)
    assert np.mean([a == b for a, b in zip(full, actual, strict=True)]) > 0.7
    sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in folders]
    assert sizes[1] < 0.8 * sizes[0]


def test_the_program_cleans_lines_like_the_package():
    characters = "".join(map(chr, [*range(0x180), *range(0x2000, 0x2070), 0xFEFF]))
    for text in (characters, " a\t b\r\n", "a\u200bb", *(f"a{one}b" for one in characters)):
        assert standalone.cleaned(text) == repair(text)


def test_the_program_lowercases_like_the_package():
    for text in ("Two DOGS", "\u039f\u03a3 \u0130 \u00c4\u1e9e", "".join(map(chr, range(0x2000)))):
        assert standalone.lowercased(text) == lowercased(text)


def test_the_program_capitalises_like_the_package():
    characters = [chr(code) for code in range(0x3100) if chr(code) not in "\n"]
    for text in ("", " ", "„é“", "- a", "-a", *(f"{one}é" for one in characters)):
        assert standalone.capitalised(text) == capitalised(text)


@FORMATS
def test_the_program_needs_no_tensorflow(model_folder, tmp_path, format):
    folder = model_folder(format)
    # A directory at the front of the path has packages of these names that raise an error when they are imported.
    for package in ("tensorflow", "keras", "t2t_keras"):
        (tmp_path / "barred" / package).mkdir(parents=True)
        (tmp_path / "barred" / package / "__init__.py").write_text("raise ImportError('barred')")
    texts = [foreign.TEXTS_TO_COPY[0], "", f" {foreign.TEXTS_TO_COPY[1]}\r", "x" * 500, "\u00a0", "\u3000 "]
    done = subprocess.run(
        [sys.executable, folder / "translate.py", "--beam_size=2"],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "barred")},
    )
    assert done.returncode == 0, done.stderr
    expected = search(standalone.load_graphs(folder), foreign.trained(), beam_size=2)
    lines = done.stdout.split("\n")
    assert lines[:3] == [expected[0], "", expected[1]] and lines[4:] == ["", "", ""]
    assert re.search(r"^line 4 has \d+ tokens; the model has seen fewer than \d+$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    "write, changes, numbers, message",
    [
        (onnx.write, {}, "float16", "--quantization=float16: ONNX supports float32, int8"),
        (litert.write, {}, "bfloat16", "--quantization=bfloat16: LiteRT supports float32, float16, int8"),
        (
            litert.write,
            {"attention_score": "additive"},
            "float32",
            "LiteRT does not support models with experts, windows or",
        ),
    ],
)
def test_unsupported_models_are_rejected(tmp_path, write, changes, numbers, message):
    config = TransformerConfig(**{**tiny.MODEL, "vocab_size": 23, **changes})
    with pytest.raises(InputError, match=message):
        write(PortableModel(Config(config), {}, tiny.tokenizer()), tmp_path, numbers)
    assert not list(tmp_path.iterdir())
