"""The code computes the same as earlier versions: names of weights, searches, a resumed run, and an export."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of an export)
from tensorflow.core.protobuf import saved_model_pb2

from t2t_keras.inference.translator import Translator
from tests.golden import recorder

pytestmark = pytest.mark.integration

GOLDEN = pathlib.Path(__file__).parent / "golden"
WEIGHTS, SEARCHES, LOSSES = (
    json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")) for name in ("weights", "searches", "losses")
)


@pytest.fixture(scope="module")
def old_export(tmp_path_factory):
    return recorder.unpacked_export(GOLDEN / "export", tmp_path_factory.mktemp("export") / "1")


def assert_same(actual, expected):
    """Texts and token ids are equal, and scores are equal except for rounding."""
    assert [[item["text"] for item in nbest] for nbest in actual] == [
        [item["text"] for item in nbest] for nbest in expected
    ]
    for nbest, golden in zip(actual, expected, strict=True):
        for item, golden_item in zip(nbest, golden, strict=True):
            assert json.loads(json.dumps(item["token_ids"])) == golden_item["token_ids"]
            for name in ("score", "log_prob"):
                np.testing.assert_allclose(item[name], golden_item[name], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", recorder.KINDS)
def test_names_and_shapes_of_weights(kind):
    assert recorder.weight_shapes(kind) == WEIGHTS[kind]


@pytest.mark.parametrize("name", recorder.SEARCHES)
def test_searches(name):
    assert_same(recorder.search_results(GOLDEN, name), SEARCHES[name])


def test_old_run_resumes(tmp_path):
    shutil.copytree(GOLDEN / "run", tmp_path / "run")
    recorder.prepare(tmp_path / "data")
    recorder.resume(tmp_path / "run", tmp_path / "data")
    np.testing.assert_allclose(recorder.losses(tmp_path / "run"), LOSSES, rtol=1e-5)


def test_old_export_translates_the_same(old_export):
    requests = recorder.requests({})
    translator = Translator.load(old_export)
    actual = [[recorder.translation_values(best)] for best in translator.translate(requests)]
    expected = [nbest[:1] for nbest in SEARCHES["beam"]]
    assert_same(actual, expected)
    signature = tf.saved_model.load(str(old_export)).signatures["serving_default"]
    outputs = signature(text=tf.constant([request.text for request in requests]))
    assert [text.decode() for text in outputs["translation"].numpy()] == [best["text"] for (best,) in expected]


def test_signatures_of_an_export(old_export, tmp_path):
    """New signatures and outputs may be added, and the old ones stay unchanged."""
    flags = [f"--model_dir={GOLDEN / 'run'}", f"--export_dir={tmp_path / 'export'}"]
    recorder.launch("export", *flags, cwd=tmp_path)
    before, now = signatures(old_export), signatures(tmp_path / "export" / "1")
    assert len(before) >= 6 and before.keys() <= now.keys()
    for name, old in before.items():
        assert now[name]["inputs"] == old["inputs"], name
        assert now[name]["outputs"] == {**now[name]["outputs"], **old["outputs"]}, name


def signatures(version):
    """Signature -> "inputs" or "outputs" -> name -> dtype and shape."""
    saved_model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    return {
        name: {
            side: {
                key: (info.dtype, [size.size for size in info.tensor_shape.dim])
                for key, info in getattr(signature, side).items()
            }
            for side in ("inputs", "outputs")
        }
        for name, signature in saved_model.meta_graphs[0].signature_def.items()
    }
