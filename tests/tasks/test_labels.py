"""Labels: scores, rejected files, and the completion of outputs."""

import itertools
import random
from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config.data_config import VocabType
from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.classification_task import ClassificationTask
from t2t_keras.tasks.labels import accuracy, as_symbol, confusions, macro_f1
from t2t_keras.tasks.question_answering_task import QuestionAnsweringTask
from t2t_keras.tasks.tagging_task import TaggingTask
from t2t_keras.text.tokenizer import trained_tokenizer

REFERENCES = ["a", "a", "a", "b", "b", "c"]
HYPOTHESES = ["a", "a", "b", "b", "c", "d"]


def test_scores_by_hand():
    assert accuracy(HYPOTHESES, REFERENCES) == pytest.approx(50)
    # F1 of a: 2 correct of 2 and 3; of b: 1 of 2 and 2; of c and d: 0.
    assert macro_f1(HYPOTHESES, REFERENCES) == pytest.approx(100 * (4 / 5 + 2 / 4 + 0 + 0) / 4)
    assert [score.value for score in ClassificationTask().scores(REFERENCES, REFERENCES)] == [100, 100]


def test_confusions_are_counted():
    assert confusions(HYPOTHESES, REFERENCES) == (
        "   a  b  c  d\na  2  1  0  0\nb  0  1  1  0\nc  0  0  0  1\nd  0  0  0  0\n"
    )


def test_classified_texts_are_read():
    task = ClassificationTask()
    assert list(task.examples(["a\tb\tpositive ", "\tx"], "f")) == [("a\tb", "positive"), ("", "x")]
    assert task.outputs(["a\tb\tpositive", "negative", ""], "f") == ["positive", "negative", ""]
    assert list(task.examples(['"a ""b"""\tgood'], "f")) == [('a "b"', "good")]
    assert task.symbols(["b", "a", "b"]) == ["<=a>", "<=b>"]
    for line, message in (
        ("a b", "line 1: expected a text and its label"),
        ("a\tb c", "line 1: 'b c' is not a valid label"),
    ):
        with pytest.raises(InputError, match=f"f, {message}"):
            list(task.examples([line], "f"))


def test_tagged_sentences_are_read():
    lines = ["-DOCSTART- -X- O", "", "Ana NNP B-PER", "a\xa0b NN O", "", "", "▁ O"]
    assert list(TaggingTask().examples(lines, "f")) == [("Ana a_b", "B-PER O"), ("_", "O")]
    assert TaggingTask().outputs(lines, "f") == ["B-PER O", "O"]
    assert TaggingTask().outputs(["B-PER  O", "O"], "f") == ["B-PER O", "O"]
    assert TaggingTask().symbols(["O B-PER", "O"]) == ["<=B-PER>", "<=O>"]
    for line, message in (
        ("Ana", "expected a word and its label, got 'Ana'"),
        ("Ana <x>", "'<x>' is not a valid label"),
    ):
        with pytest.raises(InputError, match=f"f, line 2: {message}"):
            list(TaggingTask().examples(["a O", line], "f"))


def test_files_of_labels_and_files_of_words_are_distinguished():
    task = TaggingTask()
    assert task.outputs(["Ada\tB-PER", "wrote\tO"], "f") == ["B-PER O"]
    assert task.outputs(["Ada B-PER", "wrote O"], "f") == ["B-PER O"]
    assert task.outputs(["O O B-PER", "", "B-LOC O"], "f") == ["O O B-PER", "", "B-LOC O"]
    (f1, *_) = task.scores(["O O B-PER", "", "O O"], ["O O B-PER", "", "B-LOC O"])
    assert f1.value == pytest.approx(100 * 2 / 3)
    assert task.outputs(["The\tDT", "dog\tNN"], "f") == ["DT NN"]
    assert task.outputs(["DT NN", "PRP VBZ"], "f") == ["DT NN", "PRP VBZ"]


def test_an_odd_label_does_not_change_how_a_file_is_read():
    task = TaggingTask()
    for odd in (["O B-PER", "", "O FOO"], ["FOO B-PER", "", "O O"], ["O FOO O", "B-PER"], ["DT NN .", "", "FOO NN"]):
        assert task.outputs(odd, "f") == odd
    assert task.outputs(["Ada B-PER", "wrote FOO", "", "Bo O"], "f") == ["B-PER FOO", "O"]
    assert task.outputs(["The DT", "dog NN", "", "It PRP"], "f") == ["DT NN", "PRP"]
    assert task.outputs([], "f") == [] and task.outputs([""], "f") == [""]


@pytest.mark.parametrize("expected", ["B I O O O O", "B-PER I-PER O O MISC O"])
def test_entities_without_a_type_or_beside_an_odd_label_are_entities(expected):
    """Scores of single words would give more than half to an output without entities."""
    f1, *_ = TaggingTask().scores(["O O O O O O"], [expected])
    assert (f1.name, f1.value) == ("F1", 0)


def test_columns_between_tabs_may_have_blanks_and_are_as_many_in_each_line():
    assert list(TaggingTask().examples(["New York\tX\tB-LOC", "\u3000\tX\tO\t"], "f")) == [("New_York _", "B-LOC O")]
    for line in ("# id 5\tdomain=en", "Bo NN x O"):
        with pytest.raises(InputError, match=r"f, line 2: \d columns, but 3 in the previous line"):
            list(TaggingTask().examples(["Ada NNP B-PER", line], "f"))


def test_entities_are_scored():
    """Two of three entities are found, and one wrong one."""
    expected, actual = ["B-PER I-PER O B-LOC", "B-LOC"], ["B-PER I-PER B-LOC B-LOC", "O"]
    f1, precision, recall = TaggingTask().scores(actual, expected)
    assert (precision.value, recall.value, f1.value) == pytest.approx((100 * 2 / 3, 100 * 2 / 3, 100 * 2 / 3))
    with pytest.raises(InputError, match="sentence 1: 1 labels, 4 words"):
        TaggingTask().scores(["O", "O"], expected)


def test_sentences_without_any_entity():
    assert [score.value for score in TaggingTask().scores(["O O", "O"], ["O O", "O"])] == [0, 0, 0]
    assert TaggingTask().report(["O O", ""], ["O O", ""]) == ""
    assert TaggingTask().report(["X X", "O"], ["O O", "O"]) == ""
    assert "PER" in TaggingTask().report(["O"], ["B-PER"]) and "PER" in TaggingTask().report(["I-PER"], ["O"])


@pytest.mark.parametrize(
    ("actual", "expected", "f1"),
    [
        ("U-PER U-PER O", "B-PER L-PER O", 0),
        ("B-PER L-PER B-PER L-PER", "B-PER L-PER U-PER U-PER", 40),
        ("B-PER I-PER L-PER", "B-PER I-PER L-PER", 100),
    ],
)
def test_entities_whose_last_word_is_marked(actual, expected, f1):
    assert TaggingTask().scores([actual], [expected])[0].value == pytest.approx(f1)


def test_labels_without_entities_are_scored_by_words():
    (score,) = TaggingTask().scores(["DT NN", "NN"], ["DT NNS", "NN"])
    assert (score.name, score.value) == ("accuracy", pytest.approx(100 * 2 / 3))
    assert TaggingTask().report(["DT"], ["NN"]) == ""
    (score,) = TaggingTask().scores(["B-PER"], ["PER"])
    assert score.value == 0


def test_the_first_part_of_a_long_text_is_learned():
    pairs = ClassificationTask().training_pairs("One two three. Four five.", "x", lambda text: len(text) < 20)
    assert list(pairs) == [("One two three.", "<=x>")]
    assert list(ClassificationTask().training_pairs("\xa0", "x", lambda text: False)) == [("\xa0", "<=x>")]


def test_every_word_gets_a_label_for_any_output():
    rng = random.Random(1)
    words = ["a", "bc", "", "<=O>"]
    sources = [" ".join(rng.choices(words, k=rng.randrange(6))) for _ in range(300)]
    outputs = [" ".join(rng.choices(["<=O>", "<=B-PER>", "x", ""], k=rng.randrange(6))) for _ in sources]
    finished = [TaggingTask().finish(*pair) for pair in zip(sources, outputs, strict=True)]
    assert all(len(line.split()) == len(source.split()) for line, source in zip(finished, sources, strict=True))
    assert TaggingTask().finish("a b c", "<=B-PER> <=O>") == "B-PER O O"
    in_graph = TaggingTask().finish_in_graph(tf.constant(sources), tf.constant(outputs))
    assert [line.decode() for line in in_graph.numpy()] == finished


@pytest.mark.parametrize("task", [ClassificationTask(), TaggingTask(), QuestionAnsweringTask()])
def test_targets_in_the_graph_equal_those_of_python(task):
    references = ["a", "B-PER O I-PER", "a <or> b <or> c", ""]
    sources = ["One", "Ana <=O>  Bo", "a", "x y"]
    actual = task.target_in_graph(tf.constant(sources), tf.constant(references)).numpy()
    assert [text.decode() for text in actual] == list(
        itertools.starmap(task.target, zip(sources, references, strict=True))
    )


def test_words_are_written_with_their_labels():
    task = TaggingTask()
    assert task.target("Ana sees Bo", "B-PER O B-PER") == "Ana <=B-PER> sees <=O> Bo <=B-PER>"
    assert task.finish("Ana sees Bo", "Ana <=B-PER> sees <=O> Bo <=B-PER>") == "B-PER O B-PER"
    assert task.finish("Ana <=O> Bo", task.target("Ana <=O> Bo", "B-PER O B-PER")) == "B-PER O B-PER"


@pytest.mark.parametrize("vocab_type", get_args(VocabType))
def test_the_search_writes_words_as_a_training_has_them(vocab_type):
    """The form contains the tokens of the source at the same positions as the training targets, and no others."""
    sources = ["Ana sees Bo Ito", "naïve 日本", "<=O> x", "sees"]
    references = ["B-PER O B-PER I-PER", "O B-PER", "O O", "O"]
    task = TaggingTask()
    tokenizer = trained_tokenizer(sources * 9, 278, False, vocab_type, task.symbols(references))
    form = task.form(tokenizer)
    for source, reference in zip(sources, references, strict=True):
        (known,) = form.layout(np.array([[*tokenizer.encode(source), EOS_ID]], np.int32)).known.numpy().tolist()
        learned = tokenizer.encode(task.target(source, reference))
        assert len(learned) == len(known)
        labels = [token for token, place in zip(learned, known, strict=True) if not place]
        assert [token for token, place in zip(learned, known, strict=True) if place] == [each for each in known if each]
        assert tokenizer.decode(labels) == " ".join(map(as_symbol, reference.split()))
