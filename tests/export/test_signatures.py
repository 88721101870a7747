"""Each output of an exported model, served in a separate process, equals the translator's."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DataConfig
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.explain import Explanation, Kind
from t2t_keras.inference.translator import Translator
from tests.export import exporting
from tests.export.exporting import ATTENTION, FEW, LINES, MIXED, SEEDS, TARGETS, TEXTS

pytestmark = pytest.mark.integration

LOWEST = np.finfo(np.float32).min


def decoded(texts: np.ndarray) -> list:
    return [decoded(text) if isinstance(text, np.ndarray) else text.decode("utf-8") for text in texts]


def test_translations(translator, served):
    expected = translator.translate(LINES)
    assert max(t.num_parts for t in expected) > 3
    assert min(t.num_parts for t in expected) == 0
    assert decoded(served["serving_default"]["translation"]) == [t.text for t in expected]
    assert len({t.text for t in expected}) > 12, "the outputs are too uniform for this test"
    np.testing.assert_allclose(served["serving_default"]["score"], [t.score for t in expected], rtol=1e-5, atol=1e-4)


def test_single_lines_have_the_same_results(served):
    translations = np.concatenate([result["translation"] for result in served["one_by_one"]])
    assert translations.tolist() == served["serving_default"]["translation"].tolist()
    scores = np.concatenate([result["score"] for result in served["one_by_one"]])
    np.testing.assert_allclose(scores, served["serving_default"]["score"], rtol=1e-5, atol=1e-4)
    samples = np.concatenate([result["translation"] for result in served["samples_one_by_one"]])
    assert samples.tolist() == served["sample"]["translation"].tolist()


def test_nbest(translator, served):
    expected = translator.translate_nbest(LINES, 3)
    scores = [[t.score for t in row] + [LOWEST] * (3 - len(row)) for row in expected]
    np.testing.assert_allclose(served["nbest"]["scores"], scores, rtol=1e-5, atol=1e-4)
    num_compared = 0
    for actual, row in zip(decoded(served["nbest"]["translations"]), expected, strict=True):
        assert actual[len(row) :] == [""] * (3 - len(row))
        for slot, hypothesis in enumerate(row):
            other_scores = [sibling.score for sibling in row if sibling is not hypothesis]
            # For a repetitive line, many combinations of its parts' hypotheses have equal scores.
            if not any(np.isclose(hypothesis.score, score, rtol=1e-5, atol=1e-4) for score in other_scores):
                assert actual[slot] == hypothesis.text
                num_compared += 1
    assert num_compared > 40


def test_samples(translator, served):
    for seed in set(SEEDS):
        config = dataclasses.replace(exporting.DECODE, sampling=True, beam_size=1, seed=seed)
        sampling_translator = Translator(
            translator.tokenizer, translator.model, config, DataConfig(max_length=exporting.MAX_LENGTH)
        )
        rows = [row for row in range(len(LINES)) if SEEDS[row] == seed]
        expected = sampling_translator.translate([LINES[row] for row in rows])
        assert decoded(served["sample"]["translation"][rows]) == [t.text for t in expected]
        log_probs = served["sample"]["log_probability"][rows]
        np.testing.assert_allclose(log_probs, [t.log_prob for t in expected], rtol=1e-5, atol=1e-4)


def test_scores(translator, served):
    expected = translator.score(LINES, [text.decode("utf-8", "replace") for text in TARGETS])
    outputs = served["score"]
    np.testing.assert_allclose(outputs["log_probability"], [s.log_prob for s in expected], rtol=1e-5, atol=1e-4)
    assert outputs["token_count"].tolist() == [len(s.pieces) for s in expected]


def test_tokens(translator, sources, served):
    outputs = served["tokens"]
    for row, source in enumerate(sources):
        length = outputs["translation_length"][row]
        if not source:
            assert (length, outputs["score"][row]) == (0, 0)
            assert not outputs["translation_ids"][row].any()
            continue
        result = translator.search(np.array([source], np.int32))
        assert length == result.lengths[0, 0]
        assert outputs["translation_ids"][row, :length].tolist() == result.token_ids[0, 0, :length].numpy().tolist()
        assert not outputs["translation_ids"][row, length:].any()
        np.testing.assert_allclose(outputs["score"][row], result.scores[0, 0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_alignments(translator, served, one_by_one):
    for row, translation in enumerate(translator.translate(LINES)):
        outputs, index = (served["aligned_one_by_one"][row], 0) if one_by_one else (served["align"], row)
        assert outputs["translation"][index].decode() == translation.text
        parts = translator.explain_tokens(translation.source_ids, translation.token_ids)
        pieces = [[p for part in parts for p in getattr(part, f"{side}_pieces")] for side in ("source", "target")]
        for side, expected in zip(("source", "target"), pieces, strict=True):
            actual = decoded(outputs[f"{side}_pieces"][index])
            assert actual == expected + [""] * (len(actual) - len(expected))
        attention, begin = np.zeros_like(outputs["attention"][index]), [0, 0]
        for part in parts:
            weights = part.attention.cross[0].mean(axis=0)  # the first of two layers
            end = [start + size for start, size in zip(begin, weights.shape, strict=True)]
            attention[begin[0] : end[0], begin[1] : end[1]] = weights
            begin = end
        np.testing.assert_allclose(outputs["attention"][index], attention, atol=1e-5)


@pytest.fixture(scope="module")
def explanations(translator):
    return translator.explain(LINES, [text.decode("utf-8", "replace") for text in TARGETS])


def assert_attention(outputs: dict, row: int, explanation: Explanation, kind: Kind, layer: int) -> None:
    view = explanation.view(kind)
    assert outputs["num_layers"][row] == len(view.weights)
    for side, expected in (("query_pieces", view.queries), ("key_pieces", view.keys)):
        pieces = decoded(outputs[side][row])
        assert pieces == [*expected, *[""] * (len(pieces) - len(expected))]
    expected = np.zeros_like(outputs["attention"][row])
    expected[:, : len(view.queries), : len(view.keys)] = view.weights[layer]
    np.testing.assert_allclose(outputs["attention"][row], expected, atol=1e-5)


def test_attention_of_each_kind_and_layer(explanations, served):
    """The targets are given translations; `explain` gives the expected attention."""
    for outputs, (kind, layer) in zip(served["attention"], ATTENTION, strict=True):
        assert len(outputs["attention"]) == len(explanations[FEW])
        for row, explanation in enumerate(explanations[FEW]):
            assert_attention(outputs, row, explanation, kind, layer)


def test_each_line_can_have_a_different_kind_and_layer(explanations, served):
    for row, (explanation, choice) in enumerate(zip(explanations, MIXED, strict=True)):
        assert_attention(served["attention_one_by_one"][row], 0, explanation, *choice)
        if row in range(len(TEXTS))[FEW]:
            assert_attention(served["attention_mixed"], row, explanation, *choice)


def test_empty_requests(served):
    translations, hypotheses, alignments = served["nothing"]
    assert translations["translation"].shape == translations["score"].shape == (0,)
    assert hypotheses["translations"].shape == hypotheses["scores"].shape == (0, 3)
    assert alignments["attention"].shape == (0, 0, 0)
    assert served["no_pairs"]["token_count"].shape == (0,)


def test_an_error_affects_only_its_own_request(served):
    assert "text has a line of more than 1024 tokens" in served["too_long_to_score"]
    assert "too long to be aligned" in served["too_long_to_align"]
    assert "text and target must have equal numbers of lines" in served["one_more_target"]
    assert "source_ids and source_length must have equal numbers of lines" in served["one_length_for_two"]
    for name, length in (("length_beyond_row", 9), ("length_below_zero", -1)):
        assert f'"source_length" is {length}, but the row has 2 tokens' in served[name].replace("\\", "")
    assert "text and seed must have equal numbers of lines" in served["one_more_seed"]
    assert "text and target and kind and layer must have equal numbers of lines" in served["one_more_kind"]
    assert "kind must be one of encoder, decoder, cross" in served["no_such_kind"]
    for name in ("no_such_layer", "negative_layer"):
        assert "layer must be less than the number of layers: encoder has 1, decoder has 2, cross has 2" in served[name]
    assert isinstance(served["no_such_token"], str)
    assert served["after_errors"]["translation"][0] == served["serving_default"]["translation"][0]


@pytest.mark.parametrize(
    "name, message",
    [
        ("attention_too_large", r"attention would have the shape \[256 \d+ \d+\], which is more than 8388608 elements"),
        (
            "views_too_large",
            r"attention of all layers would have the shape \[1 10 \d+ \d+\], which is more than 8388608",
        ),
        ("source_too_long", "source_ids has a line of more than 1024 tokens, including the end symbol: too long"),
        ("too_many_translations", r"translations would have the shape \[150\d+ 3 \d+\], which is more than 8388608"),
        ("too_many_ids", r"token ids would have the shape \[100000 \d+\], which is more than 8388608 elements"),
    ],
)
def test_a_request_that_exceeds_the_memory_limit_is_rejected_early(served_with_memory, name, message):
    result, grown_bytes = (values[name] for values in served_with_memory)
    assert re.search(message, result)
    assert grown_bytes < 128e6  # half of it for the strings of 150,000 lines


def test_an_export_treats_case_like_its_translator(tmp_path):
    translator = exporting.translator(lowercase="source", words=["zwei", "a", "two", "ein"])
    version = export_translator(translator, exporting.config_of(translator), tmp_path / "case")
    assert Translator.load(version).tokenizer.truecaser.words == translator.tokenizer.truecaser.words
    functions = tf.saved_model.load(str(version)).signatures
    actual = decoded(functions["serving_default"](text=tf.constant(TEXTS))["translation"].numpy())
    assert actual == [t.text for t in translator.translate(LINES)]
    assert actual != [t.text for t in exporting.translator(lowercase="source").translate(LINES)]
    upper, lower = functions["serving_default"](text=tf.constant(["TWO Dogs", "two dogs"]))["translation"].numpy()
    assert upper == lower
    scores = functions["score"](text=tf.constant(TEXTS), target=tf.constant(TARGETS))["log_probability"]
    expected = translator.score(LINES, [text.decode("utf-8", "replace") for text in TARGETS])
    np.testing.assert_allclose(scores, [score.log_prob for score in expected], rtol=1e-5, atol=1e-4)
    assert (
        translator.score(["A"], ["Zwei Hunde"])
        == translator.score(["a"], ["zwei Hunde"])
        != translator.score(["a"], ["ZWEI Hunde"])
    )
    request = {"text": tf.constant(["A man"] * 2), "prefix": tf.constant(["Zwei Hunde", "zwei Hunde"])}
    first, second = (decoded(row) for row in functions["alternatives"](**request)["translations"].numpy())
    assert first == second and all(text.startswith("Zwei Hunde") for text in first if text)
