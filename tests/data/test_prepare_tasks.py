"""Data of other tasks than translation."""

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError

TRAIN = [f"word{number} is number {number}\t{'odd' if number % 2 else 'even'}" for number in range(40)]
TEST = ["Word3 is number 3!\todd", "word90 is number 90\teven"]


def prepared(
    folder, train=TRAIN, test=TEST, splits=("train", "valid", "test"), shard_pairs=1000, **settings
) -> PreparedData:
    folder.mkdir(exist_ok=True)
    paths = {}
    for split in splits:
        lines = train if split == "train" else test
        (folder / split).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths[split] = (folder / split, None)
    config = DataConfig(**{"task": "classification", "vocab_size": 330, "max_length_ratio": 100, **settings})
    corpus = corpora.of_config(config, folder, [paths], print)
    return prepare(corpus, config, folder / "data", lambda line: None, shard_pairs=shard_pairs)


def test_references_are_kept_and_targets_encoded(tmp_path):
    data = prepared(tmp_path / "a")
    assert data.text("test") == (["Word3 is number 3!", "word90 is number 90"], ["odd", "even"])
    symbols = data.tokenizer.symbols
    assert set(symbols) == {"<=odd>", "<=even>"}
    rows = data.split("test").target_ids(range(2)).tolist()
    assert rows == [[symbols["<=odd>"], 1], [symbols["<=even>"], 1]]


REPEATED = [*TRAIN, *TRAIN[:5], TRAIN[3]]  # six occur before, and TEST has word3, which occurs three times
FORMATS = {
    "classification": "{0}\t{1}",
    "tagging": "{0} {1}\n",
    "parsing": "(S (NP {0}) (VP {1}))",
    "translation": "{0}\t{1} {0}",
}


@pytest.mark.parametrize("shard_pairs", [1000, 10])
@pytest.mark.parametrize("name", ["classification", "tagging", "parsing"])
def test_labels_are_learned_of_all_examples(tmp_path, name, shard_pairs):
    """Also of those that occur before or in an evaluation set, as published scores are."""
    counts = prepared_as(name, tmp_path, shard_pairs=shard_pairs).counts["train"]
    assert counts["read"] == counts["kept"] == len(REPEATED)
    assert counts["held_out"] == counts["duplicate"] == 0
    drawn = prepared_as(name, tmp_path / "drawn", splits=("train",), shard_pairs=shard_pairs).counts["train"]
    assert (drawn["validation"], drawn["kept"]) == (1, len(REPEATED) - 1)


def test_text_of_a_translation_is_learned_once_and_in_no_two_splits(tmp_path):
    counts = prepared_as("translation", tmp_path).counts["train"]
    assert (counts["held_out"], counts["duplicate"], counts["kept"]) == (3, 4, 39)


def prepared_as(name, folder, **settings) -> PreparedData:
    """Each example has one word with a label, or with what a task has in its place."""
    examples = [[line.split("\t") for line in lines] for lines in (REPEATED, TEST)]
    lines = [[FORMATS[name].format(text.lower().split(" ")[0], label) for text, label in each] for each in examples]
    return prepared(folder, *lines, task=name, vocab_size=300, **settings)


def test_a_label_that_training_does_not_have_is_refused(tmp_path):
    with pytest.raises(InputError, match="valid, example 2: prime: no training example has this label"):
        prepared(tmp_path / "a", test=[TEST[0], "word97 is number 97\tprime"])


@pytest.mark.parametrize("shard_pairs", [1000, 70])
def test_a_label_is_not_drawn_from_training_as_a_whole(tmp_path, shard_pairs):
    rare = [f"text {number} alone\trare{number}" for number in range(60)]
    train = [*rare, *(f"word{number} is it\t{'odd' if number % 2 else 'even'}" for number in range(600))]
    for seed in range(4):
        data = prepared(
            tmp_path / str(seed), train, splits=("train",), shard_pairs=shard_pairs, seed=seed, vocab_size=420
        )
        assert set(data.text("valid")[1]) <= {"odd", "even"}
        assert data.counts["train"]["validation"] == len(data.text("valid")[1]) > 0
    with pytest.raises(
        InputError, match="no validation set can be drawn, because every label is too rare; give --valid_source"
    ):
        prepared(tmp_path / "rare", rare, splits=("train",), vocab_size=420)


def test_labels_are_not_lowercased(tmp_path):
    with pytest.raises(InputError, match="--lowercase: outputs of classification are not text"):
        prepared(tmp_path / "a", lowercase="both")
    with pytest.raises(InputError, match="--final_marks: outputs of classification are not text"):
        prepared(tmp_path / "a", final_marks=True)
    with pytest.raises(InputError, match="--truecase: outputs of classification are not text"):
        prepared(tmp_path / "a", truecase=True)
    for changes in ({"truecase": True}, {"lowercase": "source"}):
        with pytest.raises(
            InputError, match=f"--{next(iter(changes))}.*: denoising makes its sources from its targets"
        ):
            prepare(corpora.Corpus("", {}, {}), DataConfig(task="denoising", **changes), tmp_path / "b")


@pytest.mark.parametrize("name", ["parsing", "tagging", "denoising"])
def test_tags_that_would_be_words_are_refused(tmp_path, name):
    config = DataConfig(task=name, tags=("<2de>",))
    with pytest.raises(InputError, match=f"--tag: a source of {name} must not begin with a tag"):
        prepare(corpora.Corpus("", {}, {}), config, tmp_path, print)


def test_texts_of_any_length_are_classified(tmp_path):
    long = f"{'many words of a long text. ' * 400}\teven"
    data = prepared(tmp_path / "a", train=[long, *TRAIN])
    assert data.counts["train"]["too_long"] == 0
    lengths = data.split("train").source_lengths
    assert len(data.split("train")) == 41 and 0 < max(lengths) <= data.config.max_length


def test_files_of_a_task_are_one_a_split_of_its_own_format(tmp_path):
    with pytest.raises(InputError, match="train, line 2: expected a text and its label, separated by a tab"):
        prepared(tmp_path / "a", train=[TRAIN[0], "no label"])
    for config, message in (
        (DataConfig(task="poetry"), "unknown task 'poetry'; valid: translation, parsing"),
        (DataConfig(task="parsing", corpus="multi30k"), "corpus=multi30k is text for task=translation, not parsing"),
    ):
        with pytest.raises(InputError, match=message):
            corpora.of_config(config, tmp_path, [{"train": ("a", None)}], print)
