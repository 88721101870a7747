import dataclasses
import gzip
import json
import re

import numpy as np
import pytest

from t2t_keras.data import prepare as prepare_module
from t2t_keras.data import shards
from t2t_keras.data.cleaning import comparison_key
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora, parallel_files
from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID
from tests.data.small_corpora import (
    CONFIG,
    assert_same_folder,
    corpus_of,
    kill_process,
    random_pairs,
    visible_names,
    write_corpus,
)


def test_a_prepared_folder_holds_all_that_training_and_scoring_need(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path / "data", print)
    prepared = PreparedData.open(tmp_path / "data")
    assert prepared.config == CONFIG
    assert prepared.splits == ["train", "valid", "test"]
    assert prepared.tokenizer.vocab_size == 320
    assert prepared.vocab_path.exists()
    assert [len(prepared.split(name)) for name in prepared.splits] == [400, 20, 10]
    for split in ("valid", "test"):
        encoded = prepared.split(split)
        sources, targets = prepared.text(split)
        assert list(zip(sources, targets, strict=True)) == list(corpus.splits[split]())
        rows = np.arange(len(encoded))
        assert prepared.tokenizer.decode_batch(encoded.source_ids(rows)) == sources
        assert prepared.tokenizer.decode_batch(encoded.target_ids(rows)) == targets
    for read, message in (
        (prepared.split, "'dev'; available splits: train, valid, test"),
        (prepared.text, "'train'; available splits: valid"),
    ):
        with pytest.raises(InputError, match=f"{tmp_path}/data: has no split {message}"):
            read(re.search("'(.*)'", message)[1])
    record = json.loads((tmp_path / "data" / "data.json").read_text())
    assert record["config"].pop("vocab_type") == "bpe"
    assert PreparedData(tmp_path / "data", record).config == CONFIG, "folders without a recorded type contain BPE"


@pytest.mark.parametrize("name", ["processes", "shard_pairs"])
def test_invalid_arguments_are_rejected(corpus, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        prepare(corpus, CONFIG, tmp_path, print, **{name: 0})


def test_counts_and_sizes_are_stored(corpus, tmp_path):
    prepared = prepare(corpus, CONFIG, tmp_path, print)
    counts = json.loads((tmp_path / "data.json").read_text())["counts"]
    assert counts == prepared.counts
    assert counts["train"]["read"] == counts["train"]["kept"] == 400
    assert counts["test"]["source_tokens"] == prepared.split("test").source_lengths.sum()
    assert counts["train"]["target_tokens"] == prepared.split("train").target_lengths.sum()


def test_no_intermediate_files_remain(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path, print)
    sides = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target")]
    expected = {"data.json", "vocab.model", "characters.json"} | {
        f"{side}.{kind}.npy" for side in sides for kind in ("ids", "offsets")
    }
    assert visible_names(tmp_path) == expected | {f"{side}.txt" for side in sides if not side.startswith("train")}
    assert [path.name for path in tmp_path.glob(".*")] == [".lock"]
    assert (tmp_path / ".lock").read_bytes() == b""


def test_preparing_twice_gives_the_same_bytes(corpus, tmp_path):
    for name in ("one", "two"):
        prepare(corpus, CONFIG, tmp_path / name, print)
    assert_same_folder(tmp_path / "one", tmp_path / "two")


def test_processes_and_shards_do_not_change_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "_VOCABULARY_SENTENCES", 300)  # every third pair
    pairs = random_pairs(400, 1)
    pairs = [*pairs, *pairs[::7], ("a  b", "c")]
    for name, settings in {
        "alone": {"shard_pairs": 150},
        "together": {"shard_pairs": 150, "processes": 2},
        "one shard": {},
    }.items():
        prepare(corpus_of(train=pairs, test=random_pairs(10, 3)), CONFIG, tmp_path / name, print, **settings)
    assert_same_folder(tmp_path / "alone", tmp_path / "together")
    names = {path.name for path in (tmp_path / "alone").glob("train*")}
    assert len(names) == 4 * 4 and "train.00003-of-00004.target.ids.npy" in names

    sharded, single = (PreparedData.open(tmp_path / name) for name in ("alone", "one shard"))
    assert sharded.counts == single.counts
    assert sharded.vocab_path.read_bytes() == single.vocab_path.read_bytes()
    assert sharded.text("valid") == single.text("valid")
    rows = np.random.default_rng(1).permutation(len(single.split("train")))
    for side in ("source", "target"):
        expected = getattr(single.split("train"), f"{side}_ids")(rows)
        np.testing.assert_array_equal(getattr(sharded.split("train"), f"{side}_ids")(rows), expected)


@pytest.mark.parametrize(("vocab_type", "vocab_size"), [("unigram", 300), ("char", 37000), ("byte", 37000)])
def test_other_types_of_vocabulary(corpus, tmp_path, vocab_type, vocab_size):
    config = dataclasses.replace(CONFIG, vocab_type=vocab_type, vocab_size=vocab_size)
    prepared, lines = prepare(corpus, config, tmp_path, print), []
    assert prepared.config == PreparedData.open(tmp_path).config == config
    assert prepared.tokenizer.vocab_size <= 300
    sources, targets = prepared.text("test")
    encoded, rows = prepared.split("test"), np.arange(10)
    assert prepared.tokenizer.decode_batch(encoded.source_ids(rows)) == sources
    assert prepared.tokenizer.decode_batch(encoded.target_ids(rows)) == targets
    if vocab_type != "unigram":
        size = len if vocab_type == "char" else lambda text: len(text.encode())
        # Each target has a leading blank and the end symbol.
        assert encoded.target_lengths.tolist() == [2 + size(target) for target in targets]
    prepare(corpus, config, tmp_path, lines.append)
    assert lines == [f"{tmp_path}: already prepared"]
    changed = dataclasses.replace(config, vocab_type="bpe")
    with pytest.raises(InputError, match=rf"different settings \(vocab_type: '{vocab_type}' -> 'bpe'\)"):
        prepare(corpus, changed, tmp_path, print)


def test_plain_and_compressed_files_give_the_same_data(tmp_path, monkeypatch):
    """Workers read plain files themselves; the main process reads compressed files."""
    monkeypatch.setattr(parallel_files, "_BLOCK_BYTES", 500)
    monkeypatch.setattr(parallel_files, "_COUNTED_BYTES", 2000)
    corpus = write_corpus(tmp_path, train=random_pairs(300, 1), valid=random_pairs(5, 2))
    compressed = tmp_path / "packed.en.gz"
    compressed.write_bytes(gzip.compress((tmp_path / "train.en").read_bytes()))
    sides = {"train": (compressed, tmp_path / "train.de"), "valid": (tmp_path / "valid.en", tmp_path / "valid.de")}
    prepare(corpus, CONFIG, tmp_path / "one", print, processes=2, shard_pairs=70)
    prepare(corpora.files(sides), CONFIG, tmp_path / "other", print, shard_pairs=70)
    plain_record, compressed_record = (
        json.loads((tmp_path / name / "data.json").read_text()) for name in ("one", "other")
    )
    assert plain_record.pop("provenance") != compressed_record.pop("provenance") and plain_record.pop(
        "identity"
    ) != compressed_record.pop("identity")
    assert plain_record == compressed_record
    for name in ("one", "other"):
        (tmp_path / name / "data.json").unlink()
    assert_same_folder(tmp_path / "one", tmp_path / "other")


def test_a_shard_without_kept_pairs(tmp_path):
    pairs = random_pairs(300, 1)
    prepared = prepare(
        corpus_of(train=[*pairs[:100], *pairs[:100], *pairs[100:]], valid=random_pairs(3, 2)),
        CONFIG,
        tmp_path,
        print,
        shard_pairs=100,
    )
    train = prepared.split("train")
    assert (len(train), prepared.counts["train"]["duplicate"]) == (300, 100)
    assert prepared.tokenizer.decode_batch(train.source_ids(np.arange(300))) == [source for source, _ in pairs]


def test_a_killed_process_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "clean_shard", kill_process)
    with pytest.raises(InputError, match="one of 2 processes was killed, .* memory ran out: use fewer .--processes"):
        prepare(corpus_of(train=random_pairs(90, 1)), CONFIG, tmp_path, print, processes=2, shard_pairs=30)
    assert (tmp_path / "reached").exists()


def test_a_folder_without_prepared_data_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no prepared data here"):
        PreparedData.open(tmp_path / "nowhere")
    (tmp_path / "data.json").write_text("{broken")
    with pytest.raises(InputError, match=r"data\.json is damaged"):
        PreparedData.open(tmp_path)


@pytest.mark.parametrize(
    "contents",
    ["{}", "[]", "3", '{"config": []}', '{"config": {"lr": 1}}', '{"config": {}, "counts": 3, "provenance": {}}'],
)
def test_a_foreign_file_with_the_same_name_is_an_error(corpus, tmp_path, contents):
    (tmp_path / "data.json").write_text(contents)
    for open_data in (lambda: PreparedData.open(tmp_path), lambda: prepare(corpus, CONFIG, tmp_path, print)):
        with pytest.raises(InputError, match=r"data\.json(: | does not belong to prepared data$)"):
            open_data()
    assert (tmp_path / "data.json").read_text() == contents


def test_only_training_pairs_beyond_the_limits_are_dropped_and_counted(tmp_path):
    long, lopsided = ("the cat " * 80, "die Katze " * 80), ("a", "die Katze sieht einen kleinen Hund und große Bäume")
    unfit = [("big " * 99, "große " * 99), ("x" * 100_000, "y"), ("trees", lopsided[1].upper() + " der Straße")]
    corpus = corpus_of(train=[*random_pairs(300, 1), *unfit], valid=[long, lopsided, ("x" * 100_000, "")])
    prepared = prepare(corpus, CONFIG, tmp_path, print)
    counts = prepared.counts["train"]
    assert (counts["kept"], counts["too_long"], counts["length_ratio"]) == (300, 2, 1)
    train = prepared.split("train")
    assert len(train) == 300
    assert max(train.source_lengths.max(), train.target_lengths.max()) <= CONFIG.max_length
    assert prepared.split("valid").source_lengths.max() > CONFIG.max_length
    assert prepared.split("valid").target_lengths[-1] == 1  # only the end symbol
    assert len(prepared.text("valid")[0]) == len(prepared.split("valid")) == 3


def test_a_validation_set_is_drawn_when_there_is_none(tmp_path):
    pairs = random_pairs(500, 1)
    prepared = prepare(corpus_of(train=pairs), CONFIG, tmp_path / "one", print)
    valid = list(zip(*prepared.text("valid"), strict=True))
    assert len(valid) == 5
    assert set(valid) <= set(pairs)
    counts = prepared.counts["train"]
    assert counts["validation"] == 5
    assert counts["kept"] == len(prepared.split("train")) == 495 - counts["held_out"]
    other_seed = dataclasses.replace(CONFIG, seed=2)
    assert prepare(corpus_of(train=pairs), other_seed, tmp_path / "two", print).text("valid") != prepared.text("valid")


@pytest.mark.parametrize("has_valid", [True, False])
def test_no_evaluation_sentence_is_trained_on(tmp_path, has_valid):
    train = random_pairs(300, 1)
    test = [(train[7][0].upper() + "!", "anders"), ("different", train[9][1] + " ."), random_pairs(1, 5)[0]]
    splits = {"train": train * 2, "test": test} | ({"valid": [train[11]]} if has_valid else {})
    prepared = prepare(corpus_of(**splits), CONFIG, tmp_path, print)
    encoded = prepared.split("train")
    rows = np.arange(len(encoded))
    held_out = [prepared.text(split) for split in ("valid", "test")]
    for side, ids in enumerate((encoded.source_ids(rows), encoded.target_ids(rows))):
        trained_on = {comparison_key(text) for text in prepared.tokenizer.decode_batch(ids)}
        assert len(trained_on) > 280
        assert not trained_on & {comparison_key(text) for texts in held_out for text in texts[side]}


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": [], "valid": [("a", "b")]}, "no training pair remains after cleaning: 0 read"),
        ({"train": []}, "too few training pairs to draw a validation set from: 0 read"),
        ({"train": [("", "")] * 3, "valid": [("a", "b")]}, "no training pair remains.*3 read, 3 empty"),
        ({"train": [("a", "b")], "valid": []}, "the valid split is empty"),
        ({"train": [("a", "b")], "valid": [("c", "d")], "test": []}, "the test split is empty"),
    ],
)
def test_an_empty_corpus_is_rejected(tmp_path, splits, message):
    with pytest.raises(InputError, match=message):
        prepare(corpus_of(**splits), CONFIG, tmp_path, print)


def test_a_vocabulary_that_is_too_large_can_be_corrected(corpus, tmp_path):
    with pytest.raises(
        InputError, match="vocab_size=9000 is more than the text allows; the largest valid size"
    ) as error:
        prepare(corpus, dataclasses.replace(CONFIG, vocab_size=9000), tmp_path, print)
    largest = int(str(error.value).split()[-1])
    assert (
        prepare(corpus, dataclasses.replace(CONFIG, vocab_size=largest), tmp_path, print).tokenizer.vocab_size
        == largest
    )


def test_final_marks_change_in_training_but_not_in_a_drawn_set(tmp_path):
    pairs = [(source, f"{target}.") for source, target in random_pairs(500, 1)]
    prepared = prepare(corpus_of(train=pairs), dataclasses.replace(CONFIG, final_marks=True), tmp_path, print)
    assert set(zip(*prepared.text("valid"), strict=True)) <= set(pairs)
    train = prepared.split("train")
    assert prepared.counts["train"]["final_marks"] == len(train) > 400
    targets = prepared.tokenizer.decode_batch(train.target_ids(np.arange(len(train))))
    assert {f"{target}." for target in targets} <= {target for _, target in pairs}


def test_first_words_are_truecased_in_training(tmp_path):
    pairs = [(source, f"Die {target} die") for source, target in random_pairs(300, 1)]
    config = dataclasses.replace(CONFIG, truecase=True)
    prepared = prepare(corpus_of(train=pairs, test=pairs[:3]), config, tmp_path / "one", print)
    assert {"die", "sieht"} <= set((tmp_path / "one" / "truecase.txt").read_text(encoding="utf-8").split())
    assert prepared.text("test")[1] == [target for _, target in pairs[:3]]
    for split in prepared.splits:
        targets = prepared.split(split).target_ids(np.arange(2))
        assert all(text.startswith("die ") for text in prepared.tokenizer.decode_batch(targets))
    with_names = corpus_of(train=[(source, f"Wir {target}") for source, target in random_pairs(300, 2)])
    with_vocabulary = prepare(with_names, config, tmp_path / "two", print, vocab_from=prepared.vocab_path)
    assert with_vocabulary.tokenizer.truecaser.words == prepared.tokenizer.truecaser.words


def test_lowercased_sources_do_not_change_targets(corpus, tmp_path):
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase="source"), tmp_path, print)
    sources, references = (list(side) for side in zip(*corpus.splits["test"](), strict=True))
    assert prepared.text("test") == ([source.lower() for source in sources], references)
    targets = prepared.split("test").target_ids(np.arange(len(references)))
    assert prepared.tokenizer.decode_batch(targets) == references


def test_the_tokenizer_of_lowercased_data_lowercases_its_inputs(corpus, tmp_path):
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase="both"), tmp_path, print)
    tokenizer = prepared.tokenizer
    source = prepared.text("test")[0][0]
    assert source == source.lower()
    assert [*tokenizer.encode(source.upper()), EOS_ID] == prepared.split("test").source_ids(np.array([0]))[0].tolist()


def test_the_characters_of_each_side_are_recorded(tmp_path):
    pairs = [*random_pairs(300, 1), ("a \U0001f600 b", "ß “c”")]
    first = prepare(corpus_of(train=pairs, valid=random_pairs(5, 2)), CONFIG, tmp_path / "one", print)
    characters = first.tokenizer.characters
    for side_characters, side in zip(characters, zip(*pairs, strict=True), strict=True):
        assert side_characters == set("".join(side))
    other_corpus = corpus_of(train=[*random_pairs(300, 3), ("→", "ä")], valid=random_pairs(5, 2))
    second = prepare(other_corpus, CONFIG, tmp_path / "two", print, vocab_from=first.vocab_path)
    assert second.tokenizer.characters.source >= {"→", "\U0001f600"}
    # A vocabulary without a record may belong to a model that learned different characters.
    (tmp_path / "one" / "characters.json").unlink()
    third = prepare(other_corpus, CONFIG, tmp_path / "three", print, vocab_from=first.vocab_path)
    assert third.tokenizer.characters is None


def test_the_format_of_binary_training_files_is_named(tmp_path):
    sources, targets = tmp_path / "a.en", tmp_path / "a.de"
    sources.write_text("one\ntwo\n", encoding="utf-16-le")
    targets.write_text("eins\nzwei\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"^{sources}: text in UTF-16, not text in UTF-8"):
        prepare(corpora.files({"train": (sources, targets)}), CONFIG, tmp_path / "data", print)
