"""Scores of given translations equal those of the search and of the formula."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import evaluation
from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import forced
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.inference.translator import Translator
from t2t_keras.search.batches import padded
from t2t_keras.symbols import EOS_ID
from tests.inference import tiny


def make_translator(**settings) -> Translator:
    return Translator(tiny.tokenizer(), tiny.transformer(), DecodeConfig(max_length_offset=5, **settings))


@pytest.mark.integration
def test_scores_equal_those_of_the_search():
    translator = make_translator(beam_size=3)
    source = padded([[*tiny.tokenizer().encode(line), EOS_ID] for line in tiny.SENTENCES])
    result = translator.search(source)
    for slot in range(3):
        actual = token_log_probs_function(translator.model)(source, result.token_ids[:, slot]).numpy()
        np.testing.assert_allclose(actual.sum(1), result.log_probs[:, slot], atol=1e-4)
        assert not actual[result.token_ids[:, slot].numpy() == 0].any()


def test_scores_sum_over_tokens():
    translator = make_translator(length_penalty=0.8, tokens_per_batch=60)
    sources, targets = tiny.SENTENCES, [*tiny.SENTENCES[1:], ""]
    scores = translator.score(sources, targets)
    for target, score in zip(targets, scores, strict=True):
        ids = [*tiny.tokenizer().encode(target), EOS_ID]
        assert score.pieces == tuple(tiny.tokenizer().pieces(ids))
        assert len(score.token_log_probs) == len(ids) and max(score.token_log_probs) < 0
        assert score.log_prob == pytest.approx(sum(score.token_log_probs), rel=1e-6)
        assert score.score == pytest.approx(score.log_prob / ((5 + len(ids)) / 6) ** 0.8, rel=1e-6)
    total, count = evaluation.corpus_cross_entropy(translator.model, translator.tokenizer, sources, targets)
    assert total == pytest.approx(-sum(score.log_prob for score in scores), rel=1e-5)
    assert count == sum(len(score.pieces) for score in scores)


def test_scores_do_not_depend_on_the_batch():
    together = make_translator().score(tiny.SENTENCES, tiny.SENTENCES)
    for line, expected in zip(tiny.SENTENCES, together, strict=True):
        (alone,) = make_translator().score([line], [line])
        assert alone.pieces == expected.pieces
        np.testing.assert_allclose(alone.token_log_probs, expected.token_log_probs, atol=1e-4)


def test_logits_are_computed_in_chunks(monkeypatch):
    """The logits are computed in chunks of fixed size, without padding."""

    class RecordingModel:
        def states(self, inputs, training):
            states = tiny.transformer().states(inputs, training=training)
            return states._replace(hidden=(states.hidden,))

        def logits(self, hidden):
            tf.numpy_function(lambda size: sizes.append(int(size)), [tf.shape(hidden[0])[0]], [])
            return tiny.transformer().logits(hidden[0])

    sizes: list[int] = []
    monkeypatch.setattr(forced, "_CHUNK_TOKENS", 7)
    source = padded([[*tiny.tokenizer().encode(line), EOS_ID] for line in tiny.SENTENCES])
    result = token_log_probs_function(RecordingModel())(source, source).numpy()
    assert max(sizes) == 7
    assert sum(sizes) == np.count_nonzero(source)
    logits = tiny.transformer()({"source": source, "target": source}, training=False)
    np.testing.assert_allclose(result, forced.target_log_probs(logits, tf.constant(source)), atol=1e-5)
    np.testing.assert_array_equal(
        token_log_probs_function(RecordingModel())(source[:2], 0 * source[:2]), 0 * source[:2]
    )


def test_nothing_to_score():
    assert make_translator().score([], []) == []


def test_errors(monkeypatch):
    with pytest.raises(InputError, match="2 lines, but 1 translations"):
        make_translator().score(["a", "b"], ["a"])
    monkeypatch.setattr(forced, "MAX_SCORED_LENGTH", 5)
    with pytest.raises(InputError, match="line 2: the translation has .* tokens; at most 5 tokens can be scored"):
        make_translator().score(["a", "b"], ["a", tiny.SENTENCES[0]])
    (translation,) = make_translator().translate(tiny.SENTENCES[:1])  # translations of a search may be longer
    assert len(translation.token_ids[0]) > 5
    assert make_translator().score_tokens(translation.source_ids, translation.token_ids)[0].log_prob == pytest.approx(
        translation.log_prob, abs=1e-4
    )
