"""Alignments and explanations, computed by hand and with models."""

import functools

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import forced
from t2t_keras.inference.explain import Explanation, WordAlignment, join_word_alignments
from t2t_keras.inference.translator import Translator
from t2t_keras.models.contract import Attentions
from t2t_keras.search.batches import padded
from t2t_keras.symbols import EOS_ID
from tests.inference import tiny


@functools.cache
def untrained() -> Translator:
    """A translator with one encoder layer and one decoder layer."""
    model = tiny.transformer(num_encoder_layers=1, num_decoder_layers=1)
    return Translator(tiny.tokenizer(), model, DecodeConfig(tokens_per_batch=60))


def make_explanation(source: list[str], target: list[str], *layers: list[list[float]]) -> Explanation:
    """An explanation with one head per layer, from attention weights without the end symbols."""
    attention = np.zeros((len(layers), 1, len(target) + 1, len(source) + 1), np.float32)
    attention[..., :-1, :-1] = np.array(layers)[:, None]
    attention[..., -1] = 1.0  # the largest weight, but alignments ignore end symbols
    return Explanation((*source, "</s>"), (*target, "</s>"), (-1.0,) * (len(target) + 1), cross_only(attention))


def cross_only(attention: np.ndarray) -> Attentions:
    """The attention of a model without self-attention, from [layers, heads, target_len, source_len]."""
    return Attentions(*(np.array(kind[0]) for kind in Attentions.cross_only(attention[np.newaxis])))


def align_words(explanation: Explanation) -> WordAlignment:
    (attention,) = explanation.attention.cross
    source, target = list(explanation.source_pieces), list(explanation.target_pieces)  # a translator passes lists
    return WordAlignment.of(source, target, attention.mean(axis=0))


def test_alignments_of_parts_are_joined():
    one = make_explanation(["▁a", "▁b", "c"], ["▁x", "▁y"], [[0.4, 0.3, 0.2], [0.1, 0.2, 0.3]])
    other = make_explanation(["▁d", "▁e"], ["▁z", "w", "▁v"], [[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]])
    assert (one.word_alignment(), other.word_alignment()) == ("1-0 1-1", "1-0 0-1")
    assert str(join_word_alignments([align_words(one), align_words(other)])) == "1-0 1-1 3-2 2-3"
    assert str(join_word_alignments([])) == ""


def test_truncated_translations_have_no_end_symbol():
    complete = make_explanation(["▁a", "▁b"], ["▁x", "▁y"], [[0.4, 0.6], [0.9, 0.1]])
    truncated = Explanation(
        complete.source_pieces, ("▁x", "▁y"), (-1.0, -1.0), cross_only(complete.attention.cross[:, :, :2])
    )
    assert (
        truncated.alignment() == complete.alignment()
        and truncated.word_alignment() == complete.word_alignment() == "1-0 0-1"
    )
    assert str(join_word_alignments([align_words(truncated), align_words(complete)])) == "1-0 0-1 3-2 2-3"


@pytest.mark.parametrize(
    ("source", "target", "weights", "links", "words"),
    [
        # The attention of a word is the sum over its tokens.
        ("▁a ▁b c", "▁x ▁y", [[0.4, 0.3, 0.2], [0.1, 0.2, 0.3]], [(0, 0), (2, 1)], "1-0 1-1"),
        ("▁a ▁b", "▁x y ▁z", [[0.5, 0.4], [0.1, 0.6], [0.9, 0.1]], [(0, 0), (1, 1), (0, 2)], "1-0 0-1"),
        ("", "", np.zeros((0, 0)), [], ""),
        ("▁a", "", np.zeros((0, 1)), [], ""),
        ("", "▁x", np.zeros((1, 0)), [], ""),
    ],
)
def test_alignment_by_hand(source, target, weights, links, words):
    explanation = make_explanation(source.split(), target.split(), weights)
    assert (explanation.alignment(), explanation.word_alignment()) == (links, words)


def test_heads_are_averaged():
    attention = np.zeros((1, 2, 2, 3), np.float32)
    attention[0, :, 0] = [[0.6, 0.4, 0], [0.0, 0.5, 0.5]]
    explanation = Explanation(("▁a", "▁b", "</s>"), ("▁x", "</s>"), (-1.0, -1.0), cross_only(attention))
    assert explanation.alignment() == [(1, 0)]


def test_selecting_a_layer():
    layers = [[[0.9, 0.1]], [[0.1, 0.9]], [[0.8, 0.2]]]
    explanation = make_explanation(["▁a", "▁b"], ["▁x"], *layers)
    assert [explanation.word_alignment(layer) for layer in (0, 1, 2, -1, -2)] == ["0-0", "1-0", "0-0", "0-0", "1-0"]
    assert explanation.word_alignment() == "1-0"  # the default is the penultimate layer
    for layer in (3, -4):
        with pytest.raises(ValueError, match=rf"layer must be in \[-3, 3\), got {layer}"):
            explanation.alignment(layer)


def test_explanations_agree_with_scores():
    targets = [*tiny.SENTENCES[1:], ""]
    explanations = untrained().explain(tiny.SENTENCES, targets)
    scores = untrained().score(tiny.SENTENCES, targets)
    for explanation, score, line in zip(explanations, scores, tiny.SENTENCES, strict=True):
        assert explanation.target_pieces == score.pieces
        assert explanation.source_pieces == tuple(tiny.tokenizer().pieces([*tiny.tokenizer().encode(line), EOS_ID]))
        np.testing.assert_allclose(explanation.token_log_probs, score.token_log_probs, atol=1e-5)
        for kind in Attentions._fields:
            weights, queries, keys = explanation.view(kind)
            assert weights.dtype == np.float32
            assert weights.shape == (1, 2, len(queries), len(keys))
            np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
        assert explanation.view("encoder")[1:] == (explanation.source_pieces, explanation.source_pieces)
        assert explanation.view("decoder")[1:] == (score.pieces, ("<s>", *score.pieces[:-1]))
        assert explanation.view("cross")[1:] == (score.pieces, explanation.source_pieces)
        assert np.all(np.triu(explanation.attention.decoder, 1) == 0)


def test_explanations_do_not_depend_on_the_batch():
    translator = Translator(tiny.tokenizer(), tiny.transformer())
    together = translator.explain(tiny.SENTENCES, tiny.SENTENCES[::-1])
    for source, target, expected in zip(tiny.SENTENCES, tiny.SENTENCES[::-1], together, strict=True):
        (alone,) = translator.explain([source], [target])
        for kind, others in zip(alone.attention, expected.attention, strict=True):
            np.testing.assert_allclose(kind, others, atol=1e-5)
        np.testing.assert_allclose(alone.token_log_probs, expected.token_log_probs, atol=1e-4)
    assert translator._explain.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_alignment_attention_agrees_with_the_full_attention(layers):
    translator = Translator(tiny.tokenizer(), tiny.transformer(num_decoder_layers=layers))
    ids = [[*tiny.tokenizer().encode(line), EOS_ID] for line in tiny.SENTENCES]
    inputs = {"source": padded(ids), "target": padded(ids[::-1])}
    attention = translator.model.logits_and_attention(inputs)[1].cross[:, max(layers - 2, 0)]
    np.testing.assert_allclose(translator.model.alignment_attention(inputs), np.mean(attention, axis=1), atol=1e-6)


def test_nothing_to_explain():
    assert untrained().explain([], []) == []
    assert untrained().align_tokens([], []) == []


def test_errors(monkeypatch):
    with pytest.raises(InputError, match="2 lines, but 1 translations"):
        untrained().explain(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="kind must be one of encoder, decoder, cross; got 'self'"):
        make_explanation(["▁a"], ["▁x"], [[1.0]]).view("self")
    monkeypatch.setattr(forced, "MAX_SCORED_LENGTH", 5)
    with pytest.raises(InputError, match="line 1: the source has .* tokens"):
        untrained().explain(tiny.SENTENCES[:1], ["a"])
    with pytest.raises(InputError, match=r"\(CopyModel\) has no attention, which"):
        Translator(tiny.tokenizer(), tiny.CopyModel(350)).explain(["a"], ["a"])
    with pytest.raises(InputError, match=r"\(CopyModel\) has no attention, which"):
        Translator(tiny.tokenizer(), tiny.CopyModel(350)).align_tokens([[1]], [[1]])
