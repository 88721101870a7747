import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError

TRAIN = [f"word{number} is number {number}\t{'odd' if number % 2 else 'even'}" for number in range(40)]
TEST = ["Word3 is number 3!\todd", "word90 is number 90\teven"]


def prepare_examples(
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
    data = prepare_examples(tmp_path / "a")
    assert data.text("test") == (["Word3 is number 3!", "word90 is number 90"], ["odd", "even"])
    symbols = data.tokenizer.symbols
    assert set(symbols) == {"<=odd>", "<=even>"}
    rows = data.split("test").target_ids(range(2)).tolist()
    assert rows == [[symbols["<=odd>"], 1], [symbols["<=even>"], 1]]


REPEATED = [*TRAIN, *TRAIN[:5], TRAIN[3]]  # Six repeat earlier examples; word3 of TEST occurs three times.
FORMATS = {
    "classification": "{0}\t{1}",
    "tagging": "{0} {1}\n",
    "parsing": "(S (NP {0}) (VP {1}))",
    "translation": "{0}\t{1} {0}",
}


@pytest.mark.parametrize("shard_pairs", [1000, 10])
@pytest.mark.parametrize("name", ["classification", "tagging", "parsing"])
def test_no_labelled_example_is_dropped(tmp_path, name, shard_pairs):
    """Repeated and held-out examples stay in training, as in published scores."""
    counts = prepare_task(name, tmp_path, shard_pairs=shard_pairs).counts["train"]
    assert counts["read"] == counts["kept"] == len(REPEATED)
    assert counts["held_out"] == counts["duplicate"] == 0
    drawn_counts = prepare_task(name, tmp_path / "drawn", splits=("train",), shard_pairs=shard_pairs).counts["train"]
    assert (drawn_counts["validation"], drawn_counts["kept"]) == (1, len(REPEATED) - 1)


def test_repeated_and_held_out_translations_are_dropped(tmp_path):
    counts = prepare_task("translation", tmp_path).counts["train"]
    assert (counts["held_out"], counts["duplicate"], counts["kept"]) == (3, 4, 39)


def prepare_task(name, folder, **settings) -> PreparedData:
    """Prepares examples in the format of a task; each has one word and its label."""
    examples = [[line.split("\t") for line in lines] for lines in (REPEATED, TEST)]
    lines = [
        [FORMATS[name].format(text.lower().split(" ")[0], label) for text, label in examples_of_split]
        for examples_of_split in examples
    ]
    return prepare_examples(folder, *lines, task=name, vocab_size=300, **settings)


def test_a_label_missing_from_training_is_rejected(tmp_path):
    with pytest.raises(InputError, match="valid, example 2: prime: no training example has this label"):
        prepare_examples(tmp_path / "a", test=[TEST[0], "word97 is number 97\tprime"])


@pytest.mark.parametrize("shard_pairs", [1000, 70])
def test_the_last_example_of_a_label_stays_in_training(tmp_path, shard_pairs):
    rare = [f"text {number} alone\trare{number}" for number in range(60)]
    train = [*rare, *(f"word{number} is it\t{'odd' if number % 2 else 'even'}" for number in range(600))]
    for seed in range(4):
        data = prepare_examples(
            tmp_path / str(seed), train, splits=("train",), shard_pairs=shard_pairs, seed=seed, vocab_size=420
        )
        assert set(data.text("valid")[1]) <= {"odd", "even"}
        assert data.counts["train"]["validation"] == len(data.text("valid")[1]) > 0
    with pytest.raises(
        InputError, match="no validation set can be drawn, because every label is too rare; give --valid_source"
    ):
        prepare_examples(tmp_path / "rare", rare, splits=("train",), vocab_size=420)


def test_case_settings_are_rejected_for_tasks_with_labels(tmp_path):
    with pytest.raises(InputError, match="--lowercase: outputs of classification are not text"):
        prepare_examples(tmp_path / "a", lowercase="both")
    with pytest.raises(InputError, match="--final_marks: outputs of classification are not text"):
        prepare_examples(tmp_path / "a", final_marks=True)
    with pytest.raises(InputError, match="--truecase: outputs of classification are not text"):
        prepare_examples(tmp_path / "a", truecase=True)
    for changes in ({"truecase": True}, {"lowercase": "source"}):
        with pytest.raises(
            InputError, match=f"--{next(iter(changes))}.*: denoising makes its sources from its targets"
        ):
            prepare(corpora.Corpus("", {}, {}), DataConfig(task="denoising", **changes), tmp_path / "b")


@pytest.mark.parametrize("name", ["parsing", "tagging", "denoising"])
def test_tags_are_rejected_for_tasks_on_words(tmp_path, name):
    config = DataConfig(task=name, tags=("<2de>",))
    with pytest.raises(InputError, match=f"--tag: a source of {name} must not begin with a tag"):
        prepare(corpora.Corpus("", {}, {}), config, tmp_path, print)


def test_long_texts_are_truncated_for_classification(tmp_path):
    long = f"{'many words of a long text. ' * 400}\teven"
    data = prepare_examples(tmp_path / "a", train=[long, *TRAIN])
    assert data.counts["train"]["too_long"] == 0
    lengths = data.split("train").source_lengths
    assert len(data.split("train")) == 41 and 0 < max(lengths) <= data.config.max_length


def test_files_of_a_task_must_have_its_format(tmp_path):
    with pytest.raises(InputError, match="train, line 2: expected a text and its label, separated by a tab"):
        prepare_examples(tmp_path / "a", train=[TRAIN[0], "no label"])
    for config, message in (
        (DataConfig(task="poetry"), "unknown task 'poetry'; valid: translation, parsing"),
        (DataConfig(task="parsing", corpus="multi30k"), "corpus=multi30k is text for task=translation, not parsing"),
    ):
        with pytest.raises(InputError, match=message):
            corpora.of_config(config, tmp_path, [{"train": ("a", None)}], print)
