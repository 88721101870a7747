"""Every output of an exported model, served in a process of its own, is what the translator gives."""

import dataclasses

import exporting
import numpy as np
import pytest
import tensorflow as tf
from exporting import LINES, TEXTS

from t2t_keras.decoding.batches import padded
from t2t_keras.decoding.translator import Translator

LOWEST = np.finfo(np.float32).min

TARGETS = [TEXTS[(index * 3 + 1) % 9] for index in range(len(TEXTS))]
SEEDS = [7, -(2**62), 2**40 + 7] * 9
TOO_LONG = b"dog. " * 1200


def array(texts: list[bytes]) -> np.ndarray:
    return np.array(texts, dtype=object)


def ids_request(sources: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Garbage stands behind the ends: the lengths alone count."""
    ids = padded(sources)
    lengths = np.array([len(source) for source in sources], np.int32)
    ids = np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 9)
    return {"source_ids": ids, "source_length": lengths}


@pytest.fixture(scope="module")
def sources(translator) -> list[tuple[int, ...]]:
    """Token ids, one of them of a blank line."""
    return [t.source_ids[0] if t.num_parts else () for t in translator.translate(LINES)]


@pytest.fixture(scope="module")
def served(serve, sources):
    """The results of all requests that the tests below look at, by name."""
    seeds = np.array(SEEDS[: len(TEXTS)], np.int64)
    pairs = {"text": array(TEXTS), "target": array(TARGETS)}
    requests = {
        "serving_default": ("serving_default", {"text": array(TEXTS)}),
        "nbest": ("nbest", {"text": array(TEXTS)}),
        "sample": ("sample", {"text": array(TEXTS), "seed": seeds}),
        "score": ("score", pairs),
        "tokens": ("tokens", ids_request(sources)),
        "align": ("align", {"text": array(TEXTS)}),
        "one_by_one": [("serving_default", {"text": array([text])}) for text in TEXTS],
        "samples_one_by_one": [("sample", {"text": array([t]), "seed": seeds[i : i + 1]}) for i, t in enumerate(TEXTS)],
        "aligned_one_by_one": [("align", {"text": array([text])}) for text in TEXTS],
        "nothing": [(name, {"text": array([])}) for name in ("serving_default", "nbest", "align")],
        "no_pairs": ("score", {"text": array([]), "target": array([])}),
        "too_long_to_score": ("score", {"text": array([b"A", TOO_LONG]), "target": array([b"B", b"C"])}),
        "too_long_to_align": ("align", {"text": array([b"A", TOO_LONG])}),
        "one_more_target": ("score", {"text": array([b"A"]), "target": array([b"B", b"C"])}),
        "no_such_token": ("tokens", ids_request([(5, 10**6, 1)])),
        "after_errors": ("serving_default", {"text": array(TEXTS[:1])}),
    }
    flat = [request for value in requests.values() for request in (value if isinstance(value, list) else [value])]
    results = iter(serve(flat))
    return {n: [next(results) for _ in v] if isinstance(v, list) else next(results) for n, v in requests.items()}


def decoded(texts: np.ndarray) -> list:
    return [decoded(text) if isinstance(text, np.ndarray) else text.decode("utf-8") for text in texts]


def test_translations(translator, served):
    expected = translator.translate(LINES)
    assert max(t.num_parts for t in expected) > 3
    assert min(t.num_parts for t in expected) == 0
    assert decoded(served["serving_default"]["translation"]) == [t.text for t in expected]
    assert len({t.text for t in expected}) > 12, "the model says different things"
    np.testing.assert_allclose(served["serving_default"]["score"], [t.score for t in expected], rtol=1e-5, atol=1e-4)


def test_one_by_one(served):
    found = np.concatenate([result["translation"] for result in served["one_by_one"]])
    assert found.tolist() == served["serving_default"]["translation"].tolist()
    scores = np.concatenate([result["score"] for result in served["one_by_one"]])
    np.testing.assert_allclose(scores, served["serving_default"]["score"], rtol=1e-5, atol=1e-4)
    drawn = np.concatenate([result["translation"] for result in served["samples_one_by_one"]])
    assert drawn.tolist() == served["sample"]["translation"].tolist()


def test_nbest(translator, served):
    expected = translator.translate_nbest(LINES, 3)
    texts = [[t.text for t in row] + [""] * (3 - len(row)) for row in expected]
    assert decoded(served["nbest"]["translations"]) == texts
    scores = [[t.score for t in row] + [LOWEST] * (3 - len(row)) for row in expected]
    np.testing.assert_allclose(served["nbest"]["scores"], scores, rtol=1e-5, atol=1e-4)


def test_samples(translator, served):
    for seed in SEEDS[:3]:
        config = dataclasses.replace(exporting.DECODE, sampling=True, beam_size=1, seed=seed)
        own = Translator(translator.tokenizer, translator.model, config, max_source_length=exporting.MAX_LENGTH)
        rows = [row for row in range(len(LINES)) if SEEDS[row] == seed]
        expected = own.translate([LINES[row] for row in rows])
        assert decoded(served["sample"]["translation"][rows]) == [t.text for t in expected]
        log_probs = served["sample"]["log_probability"][rows]
        np.testing.assert_allclose(log_probs, [t.log_prob for t in expected], rtol=1e-5, atol=1e-4)


def test_scores(translator, served):
    expected = translator.score(LINES, [text.decode("utf-8", "replace") for text in TARGETS])
    found = served["score"]
    np.testing.assert_allclose(found["log_probability"], [s.log_prob for s in expected], rtol=1e-5, atol=1e-4)
    assert found["token_count"].tolist() == [len(s.pieces) for s in expected]


def test_tokens(translator, sources, served):
    found = served["tokens"]
    for row, source in enumerate(sources):
        length = found["translation_length"][row]
        if not source:
            assert (length, found["score"][row]) == (0, 0)
            assert not found["translation_ids"][row].any()
            continue
        result = translator.search(np.array([source], np.int32))
        assert length == result.lengths[0, 0]
        assert found["translation_ids"][row, :length].tolist() == result.token_ids[0, 0, :length].numpy().tolist()
        assert not found["translation_ids"][row, length:].any()
        np.testing.assert_allclose(found["score"][row], result.scores[0, 0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_alignments(translator, served, one_by_one):
    for row, translation in enumerate(translator.translate(LINES)):
        found, place = (served["aligned_one_by_one"][row], 0) if one_by_one else (served["align"], row)
        assert found["translation"][place].decode() == translation.text
        parts = translator.explain_tokens(translation.source_ids, translation.token_ids)
        pieces = [[p for part in parts for p in getattr(part, f"{side}_pieces")] for side in ("source", "target")]
        for side, expected in zip(("source", "target"), pieces, strict=True):
            given = decoded(found[f"{side}_pieces"][place])
            assert given == expected + [""] * (len(given) - len(expected))
        attention, begin = np.zeros_like(found["attention"][place]), [0, 0]
        for part in parts:
            own = part.attention[0].mean(axis=0)  # the first layer of two
            end = [start + size for start, size in zip(begin, own.shape, strict=True)]
            attention[begin[0] : end[0], begin[1] : end[1]] = own
            begin = end
        np.testing.assert_allclose(found["attention"][place], attention, atol=1e-5)


def test_empty_requests(served):
    translations, hypotheses, alignments = served["nothing"]
    assert translations["translation"].shape == translations["score"].shape == (0,)
    assert hypotheses["translations"].shape == hypotheses["scores"].shape == (0, 3)
    assert alignments["attention"].shape == (0, 0, 0)
    assert served["no_pairs"]["token_count"].shape == (0,)


def test_what_cannot_be_done_is_an_error_and_only_of_its_own_request(served):
    assert "text has a line of more than 1024 tokens" in served["too_long_to_score"]
    assert "too long to be aligned" in served["too_long_to_align"]
    assert "text and target must have as many lines" in served["one_more_target"]
    assert isinstance(served["no_such_token"], str)
    assert served["after_errors"]["translation"][0] == served["serving_default"]["translation"][0]


SETTINGS = {
    "greedy": {"beam_size": 1},
    "sampling": {"sampling": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 3},
    "groups": {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5, "length_normalization": "average"},
    "rules": {"no_repeat_ngram_size": 2, "coverage_penalty": 0.2, "min_length": 3, "patience": 1.0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_search(name):
    """Not written to disk: what is written holds just these functions."""
    from t2t_keras.export.pipeline import Pipeline
    from t2t_keras.export.signatures import signatures
    from t2t_keras.export.weights import Weights

    arguments = {"excluded": ["Hunde", "dog"], "lowercase": True} if name == "rules" else {}
    own = exporting.translator(dataclasses.replace(exporting.DECODE, **SETTINGS[name]), **arguments)
    pipeline = Pipeline(own, Weights(own.model), own.tokenizer.graph_tokenizer())
    found = signatures(pipeline)["nbest"](tf.constant(TEXTS))
    expected = own.translate_nbest(LINES, own.config.beam_size)
    assert found["translations"].shape == (len(LINES), own.config.beam_size)
    for row, hypotheses in enumerate(expected):
        texts = decoded(found["translations"][row].numpy())
        assert texts == [t.text for t in hypotheses] + [""] * (len(texts) - len(hypotheses))
        scores = found["scores"][row, : len(hypotheses)]
        np.testing.assert_allclose(scores, [t.score for t in hypotheses], rtol=1e-5, atol=1e-4)
