"""Documents that are translated with the signature `align` equal those of the translator."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.signatures import signatures
from t2t_keras.inference.marked_text import translate_marked
from t2t_keras.inference.served_markup import ServedDocuments
from t2t_keras.text.markup.documents import MarkedDocument
from tests.export import exporting

DOCUMENTS = [
    "<p>Two <b>dogs</b> play, {name}.</p><p>12</p><code>x</code>",
    "<p>A man is <i>walking</i> &amp; <a href='x'>dogs play</a> in the snow. " + "Two <b>dogs</b> play. " * 6 + "</p>",
    "",
]


@pytest.mark.integration
def test_served_documents_equal_those_of_the_translator():
    translator = exporting.translator()
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)
    align = signatures(pipeline)["align"]
    documents = ServedDocuments("html", DOCUMENTS)
    texts = documents.texts
    assert len(texts) == 2
    actual = {name: tensor.numpy() for name, tensor in align(tf.constant(texts)).items()}
    rows = [{name: array[row : row + 1] for name, array in actual.items()} for row in range(len(texts))]
    expected, _ = translate_marked(translator, [MarkedDocument.parsed(text, "html", "") for text in DOCUMENTS])
    assert documents.filled(rows) == expected
    assert expected[0].count("<b>") == 1 and expected[1].count("<b>") == 6


def test_tags_before_parts_keep_markup_positions():
    pieces = np.array([["<2de>", "▁A", "▁dog", ".", "</s>", "<2de>", "▁Two", "▁men", "</s>"]], object)
    encoded = np.array([[piece.encode() for piece in pieces[0]]], object)
    target = np.array([[piece for piece in encoded[0] if piece != b"<2de>"]], object)
    attention = np.eye(9, dtype=np.float32)[np.newaxis, [1, 2, 3, 4, 6, 7, 8]]
    outputs = {"translation": np.array([b"A dog. Two men"], object), "attention": attention}
    outputs |= {"source_pieces": encoded, "target_pieces": target}
    document = "<p>A <b>dog</b>. Two <i>men</i></p>"
    assert ServedDocuments("html", [document]).filled([outputs]) == [document]


def test_texts_without_a_translation_are_unchanged():
    nothing = {"translation": np.array([b""], object), "attention": np.zeros([1, 0, 2], np.float32)}
    nothing |= {f"{side}_pieces": np.array([[b""]], object) for side in ("source", "target")}
    assert ServedDocuments("html", ["<p>A <b>dog</b>.</p>"]).filled([nothing]) == ["<p>A <b>dog</b>.</p>"]


def test_attributes_are_translated_on_request():
    document = "<p>A <img alt='A dog'> runs.</p>"
    assert ServedDocuments("html", [document]).texts == ["A runs."]
    documents = ServedDocuments("html", [document], ["alt"])
    assert documents.texts == ["A runs.", "A dog"]
    nothing = {"translation": np.array([b""], object), "attention": np.zeros([1, 0, 2], np.float32)}
    nothing |= {f"{side}_pieces": np.array([[b""]], object) for side in ("source", "target")}
    assert documents.filled([nothing, nothing]) == [document]


def test_errors():
    with pytest.raises(InputError, match="^markup must be one of html, xml, placeholders; got 'rtf'$"):
        ServedDocuments("rtf", ["a"])
    with pytest.raises(InputError, match=f"got '{'x' * 40}'$"):
        ServedDocuments("x" * 5000, ["a"])
    with pytest.raises(InputError, match="document 2.*line 1"):
        ServedDocuments("xml", ["<a/>", "<a>"])
