"""Attention out: alignments by hand, alignments of a model that has learned to copy, and words."""

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
def words() -> list[str]:
    """Some that are one token each, so that no part of one predicts the next."""
    pieces = tiny.tokenizer().pieces(range(tiny.tokenizer().vocab_size))
    candidates = [piece.removeprefix("▁") for piece in pieces if piece.startswith("▁")]
    return [word for word in candidates if word and len(tiny.tokenizer().encode(word)) == 1][:16]


@functools.cache
def untrained() -> Translator:
    """A translator with one layer on each side."""
    model = tiny.transformer(num_encoder_layers=1, num_decoder_layers=1)
    return Translator(tiny.tokenizer(), model, DecodeConfig(tokens_per_batch=60))


def by_hand(source: list[str], target: list[str], *layers: list[list[float]]) -> Explanation:
    """One head a layer; rows of attention without the end symbols."""
    attention = np.zeros((len(layers), 1, len(target) + 1, len(source) + 1), np.float32)
    attention[..., :-1, :-1] = np.array(layers)[:, None]
    attention[..., -1] = 1.0  # more than to any other: end symbols take no part
    return Explanation((*source, "</s>"), (*target, "</s>"), (-1.0,) * (len(target) + 1), cross_only(attention))


def cross_only(attention: np.ndarray) -> Attentions:
    """Of a model without self-attention; `attention` is [layers, heads, target_len, source_len]."""
    return Attentions(*(np.array(kind[0]) for kind in Attentions.cross_only(attention[np.newaxis])))


def words_of(explanation: Explanation) -> WordAlignment:
    (attention,) = explanation.attention.cross
    return WordAlignment.of(explanation.source_pieces, explanation.target_pieces, attention.mean(axis=0))


def test_parts_of_a_line_make_one_alignment():
    one = by_hand(["▁a", "▁b", "c"], ["▁x", "▁y"], [[0.4, 0.3, 0.2], [0.1, 0.2, 0.3]])
    other = by_hand(["▁d", "▁e"], ["▁z", "w", "▁v"], [[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]])
    assert (one.word_alignment(), other.word_alignment()) == ("1-0 1-1", "1-0 0-1")
    assert str(join_word_alignments([words_of(one), words_of(other)])) == "1-0 1-1 3-2 2-3"
    assert str(join_word_alignments([])) == ""


def test_a_translation_that_was_cut_off_has_no_end_symbol():
    whole = by_hand(["▁a", "▁b"], ["▁x", "▁y"], [[0.4, 0.6], [0.9, 0.1]])
    cut = Explanation(whole.source_pieces, ("▁x", "▁y"), (-1.0, -1.0), cross_only(whole.attention.cross[:, :, :2]))
    assert cut.alignment() == whole.alignment() and cut.word_alignment() == whole.word_alignment() == "1-0 0-1"
    assert str(join_word_alignments([words_of(cut), words_of(whole)])) == "1-0 0-1 3-2 2-3"


@pytest.mark.parametrize(
    ("source", "target", "weights", "links", "words"),
    [
        # Words have the attention of all their tokens.
        ("▁a ▁b c", "▁x ▁y", [[0.4, 0.3, 0.2], [0.1, 0.2, 0.3]], [(0, 0), (2, 1)], "1-0 1-1"),
        ("▁a ▁b", "▁x y ▁z", [[0.5, 0.4], [0.1, 0.6], [0.9, 0.1]], [(0, 0), (1, 1), (0, 2)], "1-0 0-1"),
        ("", "", np.zeros((0, 0)), [], ""),
        ("▁a", "", np.zeros((0, 1)), [], ""),
        ("", "▁x", np.zeros((1, 0)), [], ""),
    ],
)
def test_alignment_by_hand(source, target, weights, links, words):
    explanation = by_hand(source.split(), target.split(), weights)
    assert (explanation.alignment(), explanation.word_alignment()) == (links, words)


def test_heads_are_averaged():
    attention = np.zeros((1, 2, 2, 3), np.float32)
    attention[0, :, 0] = [[0.6, 0.4, 0], [0.0, 0.5, 0.5]]
    explanation = Explanation(("▁a", "▁b", "</s>"), ("▁x", "</s>"), (-1.0, -1.0), cross_only(attention))
    assert explanation.alignment() == [(1, 0)]


def test_a_layer_can_be_chosen():
    layers = [[[0.9, 0.1]], [[0.1, 0.9]], [[0.8, 0.2]]]
    explanation = by_hand(["▁a", "▁b"], ["▁x"], *layers)
    assert [explanation.word_alignment(layer) for layer in (0, 1, 2, -1, -2)] == ["0-0", "1-0", "0-0", "0-0", "1-0"]
    assert explanation.word_alignment() == "1-0"  # the last but one
    for layer in (3, -4):
        with pytest.raises(ValueError, match=rf"layer must be in \[-3, 3\), got {layer}"):
            explanation.alignment(layer)


def test_its_numbers_are_those_of_the_score_and_its_attention_adds_up():
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


def test_a_pair_is_explained_alike_in_every_batch():
    translator = Translator(tiny.tokenizer(), tiny.transformer())
    together = translator.explain(tiny.SENTENCES, tiny.SENTENCES[::-1])
    for source, target, expected in zip(tiny.SENTENCES, tiny.SENTENCES[::-1], together, strict=True):
        (alone,) = translator.explain([source], [target])
        for kind, others in zip(alone.attention, expected.attention, strict=True):
            np.testing.assert_allclose(kind, others, atol=1e-5)
        np.testing.assert_allclose(alone.token_log_probs, expected.token_log_probs, atol=1e-4)
    assert translator._explain.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_alignment_alone_is_that_of_the_explanation(layers):
    translator = Translator(tiny.tokenizer(), tiny.transformer(num_decoder_layers=layers))
    ids = [[*tiny.tokenizer().encode(line), EOS_ID] for line in tiny.SENTENCES]
    inputs = {"source": padded(ids), "target": padded(ids[::-1])}
    attention = translator.model.logits_and_attention(inputs)[1].cross[:, max(layers - 2, 0)]
    np.testing.assert_allclose(translator.model.alignment_attention(inputs), np.mean(attention, axis=1), atol=1e-6)


def test_nothing_to_explain():
    assert untrained().explain([], []) == []
    assert untrained().align_tokens([], []) == []


def test_bad_input_is_named(monkeypatch):
    with pytest.raises(InputError, match="2 lines, but 1 translations"):
        untrained().explain(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="kind must be one of encoder, decoder, cross; got 'self'"):
        by_hand(["▁a"], ["▁x"], [[1.0]]).view("self")
    monkeypatch.setattr(forced, "MAX_SCORED_LENGTH", 5)
    with pytest.raises(InputError, match="line 1: the source has .* tokens"):
        untrained().explain(tiny.SENTENCES[:1], ["a"])
    with pytest.raises(InputError, match=r"\(CopyModel\) has no attention, which"):
        Translator(tiny.tokenizer(), tiny.CopyModel(350)).explain(["a"], ["a"])
    with pytest.raises(InputError, match=r"\(CopyModel\) has no attention, which"):
        Translator(tiny.tokenizer(), tiny.CopyModel(350)).align_tokens([[1]], [[1]])
