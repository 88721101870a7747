import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import signal
import threading

import numpy as np
import pytest

from t2t_keras import locking
from t2t_keras.config import EOS_ID, DataConfig
from t2t_keras.data import checksums, corpora, shards
from t2t_keras.data import prepare as prepare_module
from t2t_keras.data.cleaning import comparison_key
from t2t_keras.data.corpora import Corpus
from t2t_keras.data.journal import Journal, write_json
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.errors import InputError

ENGLISH = "the cat sees a small dog and big trees over street green apples isn't naïve two old houses by rivers"
GERMAN = "die Katze sieht einen kleinen Hund und große Bäume über Straße grüne Äpfel ist nicht zwei alte Häuser"
CONFIG = DataConfig(vocab_size=320, max_length=80, max_length_ratio=6.0)


def some_pairs(count, seed):
    generator = random.Random(seed)

    def sentence(words):
        return " ".join(generator.choices(words.split(), k=generator.randint(5, 9)))

    return [(sentence(ENGLISH), sentence(GERMAN)) for _ in range(count)]


def corpus_of(identity="1", **splits):
    return Corpus({name: lambda pairs=pairs: iter(pairs) for name, pairs in splits.items()}, {"text": identity})


def names_in(folder):
    """What is not hidden: the lock's file is, and what the text's files looked like."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def assert_same_folder(one, other):
    assert names_in(one) == names_in(other)
    for name in names_in(one):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def files_of(folder, **splits):
    """A corpus of files in a folder."""
    paths = {}
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        paths[split] = tuple(folder / f"{split}.{side}" for side in ("en", "de"))
        for path, lines in zip(paths[split], zip(*pairs, strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpora.files(paths)


def kill_itself(number, raw):
    (raw.data_dir / "reached").touch()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def corpus():
    return corpus_of(train=some_pairs(400, 1), valid=some_pairs(20, 2), test=some_pairs(10, 3))


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


def test_counts_and_sizes_are_stored(corpus, tmp_path):
    prepared = prepare(corpus, CONFIG, tmp_path, print)
    counts = json.loads((tmp_path / "data.json").read_text())["counts"]
    assert counts == prepared.counts
    assert counts["train"]["read"] == counts["train"]["kept"] == 400
    assert counts["test"]["source_tokens"] == prepared.split("test").source_lengths.sum()
    assert counts["train"]["target_tokens"] == prepared.split("train").target_lengths.sum()


def test_only_what_is_needed_stays(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path, print)
    sides = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target")]
    expected = {"data.json", "vocab.model"} | {f"{side}.{kind}.npy" for side in sides for kind in ("ids", "offsets")}
    assert names_in(tmp_path) == expected | {f"{side}.txt" for side in sides if not side.startswith("train")}
    assert [path.name for path in tmp_path.glob(".*")] == [".lock"]
    assert (tmp_path / ".lock").read_bytes() == b""


def test_preparing_twice_gives_the_same_bytes(corpus, tmp_path):
    for name in ("one", "two"):
        prepare(corpus, CONFIG, tmp_path / name, print)
    assert_same_folder(tmp_path / "one", tmp_path / "two")


def test_prepared_data_is_reused_without_reading_the_corpus(corpus, tmp_path, capsys):
    prepare(corpus, CONFIG, tmp_path, print)

    def unreadable():
        raise AssertionError("read again")

    again = prepare(dataclasses.replace(corpus, splits=dict.fromkeys(corpus.splits, unreadable)), CONFIG, tmp_path)
    assert len(again.split("train")) == 400
    assert "already prepared" in capsys.readouterr().out


def test_other_settings_or_another_text_are_refused_with_the_difference(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path, print)
    other = dataclasses.replace(CONFIG, vocab_size=330, lowercase=True)
    with pytest.raises(InputError, match=r"other settings \(lowercase: False -> True, vocab_size: 320 -> 330\)"):
        prepare(corpus, other, tmp_path, print)
    with pytest.raises(InputError, match=r"other settings \(text: '1' -> '2'\)"):
        prepare(dataclasses.replace(corpus, identity={"text": "2"}), CONFIG, tmp_path, print)


@pytest.mark.parametrize("has_valid", [True, False])
def test_after_any_number_of_interruptions_only_what_is_missing_is_done(tmp_path, monkeypatch, has_valid):
    """Interrupted after each single step, by whatever: what was done is kept, and the bytes are the same."""
    pairs = some_pairs(400, 1)
    splits = {"train": [*pairs, *pairs[::7]], "test": some_pairs(10, 3)}
    corpus = corpus_of(**splits, **({"valid": some_pairs(20, 2)} if has_valid else {}))
    prepare(corpus, CONFIG, tmp_path / "whole", print, shard_pairs=150)
    add, done = Journal.add, []

    def add_and_die(journal, name, result):
        add(journal, name, result)
        done.append(name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", add_and_die)
        for _ in range(100):
            try:
                prepare(corpus, CONFIG, tmp_path / "data", print, shard_pairs=150)
                break
            except KeyboardInterrupt:
                with pytest.raises(InputError, match="was interrupted; run launch.prepare_data again"):
                    PreparedData.open(tmp_path / "data")
    by_shard = [f"{step} {number}" for step in ("cleaning", "selecting", "encoding train") for number in range(4)]
    assert sorted(done) == sorted(
        [*by_shard, "evaluation text", "reading", "vocabulary", "encoding valid", "encoding test"]
    )
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


def test_what_was_cut_off_while_being_written_goes(corpus, tmp_path):
    (tmp_path / ".train.00000.source.txt.17.tmp").write_text("half a sen")
    (tmp_path / "train.00001-of-00002.source.ids.npy").write_text("of other settings")
    prepare(corpus, CONFIG, tmp_path, print)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp" or "-of-" in path.name]


def test_neither_processes_nor_shards_change_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "_VOCABULARY_SENTENCES", 300)  # every third pair
    pairs = some_pairs(400, 1)
    pairs = [*pairs, *pairs[::7], ("a  b", "c")]
    for name, settings in {
        "alone": {"shard_pairs": 150},
        "together": {"shard_pairs": 150, "processes": 2},
        "one shard": {},
    }.items():
        prepare(corpus_of(train=pairs, test=some_pairs(10, 3)), CONFIG, tmp_path / name, print, **settings)
    assert_same_folder(tmp_path / "alone", tmp_path / "together")
    names = {path.name for path in (tmp_path / "alone").glob("train*")}
    assert len(names) == 4 * 4 and "train.00003-of-00004.target.ids.npy" in names

    many, one = (PreparedData.open(tmp_path / name) for name in ("alone", "one shard"))
    assert many.counts == one.counts
    assert many.vocab_path.read_bytes() == one.vocab_path.read_bytes()
    assert many.text("valid") == one.text("valid")
    rows = np.random.default_rng(1).permutation(len(one.split("train")))
    for side in ("source", "target"):
        expected = getattr(one.split("train"), f"{side}_ids")(rows)
        np.testing.assert_array_equal(getattr(many.split("train"), f"{side}_ids")(rows), expected)


def test_a_shard_of_which_nothing_is_kept(tmp_path):
    pairs = some_pairs(300, 1)
    prepared = prepare(
        corpus_of(train=[*pairs[:100], *pairs[:100], *pairs[100:]], valid=some_pairs(3, 2)),
        CONFIG,
        tmp_path,
        print,
        shard_pairs=100,
    )
    train = prepared.split("train")
    assert (len(train), prepared.counts["train"]["duplicate"]) == (300, 100)
    assert prepared.tokenizer.decode_batch(train.source_ids(np.arange(300))) == [source for source, _ in pairs]


def test_a_process_that_is_killed_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "clean_shard", kill_itself)
    with pytest.raises(InputError, match="one of 2 processes was killed, for lack of memory perhaps: take fewer"):
        prepare(corpus_of(train=some_pairs(90, 1)), CONFIG, tmp_path, print, processes=2, shard_pairs=30)
    assert (tmp_path / "reached").exists()


@pytest.mark.parametrize("name", ["processes", "shard_pairs"])
def test_impossible_arguments_are_named(corpus, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        prepare(corpus, CONFIG, tmp_path, print, **{name: 0})


def test_two_preparations_of_one_folder_do_not_meet(corpus, tmp_path, monkeypatch):
    """The second waits for the first one's data, and gives up with one line where that takes long."""
    began, goes_on = threading.Event(), threading.Event()

    def slowly():
        began.set()
        assert goes_on.wait(60)
        return corpus.splits["train"]()

    slow = dataclasses.replace(corpus, splits={**corpus.splits, "train": slowly})
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        first = threads.submit(prepare, slow, CONFIG, tmp_path, print)
        assert began.wait(60)
        with monkeypatch.context() as patched:
            patched.setattr(locking, "_PATIENCE_SECONDS", 0.0)
            message = rf"{tmp_path} is being prepared already, by process {os.getpid()} on .*; use another --data_dir"
            with pytest.raises(InputError, match=message):
                prepare(corpus, CONFIG, tmp_path, print)
        monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 60.0)
        lines = []
        second = threads.submit(prepare, corpus, CONFIG, tmp_path, lines.append)
        goes_on.set()
        assert first.result(60).counts == second.result(60).counts
    assert lines == [f"{tmp_path}: already prepared"]


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("valid.source.txt", True),
        ("test.target.txt", True),
        ("train.00012.source.txt", True),
        ("train.source.ids.npy", True),
        ("vocab.model", True),
        ("train.source.txt", False),
        ("text.en", False),
    ],
)
def test_text_that_would_be_overwritten_is_refused_before_anything_is_written(tmp_path, monkeypatch, name, is_refused):
    files_of(tmp_path, train=some_pairs(300, 1))
    path = tmp_path / "data" / name
    path.parent.mkdir()
    os.rename(tmp_path / "train.en", path)
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    text = path.read_bytes()
    for given in (path, tmp_path / "link", pathlib.Path("data", "..", "data", name)):
        corpus = corpora.files({"train": (given, tmp_path / "train.de")})
        if is_refused:
            message = rf"{given}: cannot be read from there, for {tmp_path}/data gets a file of that name"
            with pytest.raises(InputError, match=message):
                prepare(corpus, CONFIG, tmp_path / "data", print)
            assert [entry.name for entry in path.parent.iterdir()] == [name]
        else:
            assert len(prepare(corpus, CONFIG, tmp_path / "data", print).split("train")) > 200
        assert path.read_bytes() == text


def test_unchanged_text_is_not_read_again_to_see_that_it_is_unchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_SETTLED_SECONDS", -60.0)  # as if it had been written long ago
    corpus = files_of(tmp_path, train=some_pairs(300, 1), valid=some_pairs(5, 2))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "checksum", lambda path: pytest.fail(f"{path} was read"))
        prepare(corpus, CONFIG, tmp_path / "data", print)
    changed = files_of(tmp_path, train=some_pairs(300, 7), valid=some_pairs(5, 2))
    with pytest.raises(InputError, match=r"other settings \(train_source: \w+... -> \w+..., train_target: [^,]*\)"):
        prepare(changed, CONFIG, tmp_path / "data", print)


def test_data_in_a_folder_that_is_read_only_is_reused(tmp_path):
    corpus = files_of(tmp_path, train=some_pairs(300, 1))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    for name in (".lock", ".checksums.json"):
        (tmp_path / "data" / name).unlink(missing_ok=True)
    writing = pathlib.Path(tmp_path / "data" / ".checksums.json")
    writing.mkdir()  # nobody can write a file of that name, not even root
    again = prepare(corpus, CONFIG, tmp_path / "data", print)
    assert len(again.split("train")) > 200
    assert not (tmp_path / "data" / ".lock").exists()


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"vocab_size": 330}, {"vocabulary", "encoding"}),
        ({"max_length_ratio": 5.0}, {"encoding"}),
        ({"lowercase": True}, {"evaluation", "cleaning", "reading", "selecting", "vocabulary", "encoding"}),
        ({"vocab_size": 330, "seed": 2}, {"evaluation", "cleaning", "reading", "selecting", "vocabulary", "encoding"}),
    ],
)
def test_a_corrected_setting_costs_the_steps_that_depend_on_it(corpus, tmp_path, monkeypatch, changes, again):
    def interrupted(path, values):
        if path.name == "data.json":
            raise KeyboardInterrupt
        write_json(path, values)

    with monkeypatch.context() as patched:
        patched.setattr(prepare_module, "write_json", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, CONFIG, tmp_path / "data", print, shard_pairs=150)
    add, done = Journal.add, set()
    monkeypatch.setattr(
        Journal, "add", lambda journal, name, result: (done.add(name.split()[0]), add(journal, name, result))
    )
    settings = dataclasses.replace(CONFIG, **changes)
    prepare(corpus, settings, tmp_path / "data", print, shard_pairs=150)
    assert done == again
    prepare(corpus, settings, tmp_path / "whole", print, shard_pairs=150)
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


def test_what_is_outdated_stays_so_if_the_next_try_is_killed_at_once(tmp_path):
    """The journal forgets before files are replaced: going back to the first settings does not bring them back."""
    path, dependents = tmp_path / "journal", {"size": ("late",)}
    journal = Journal(path, {"size": 1, "other": 1}, dependents)
    for name in ("early 0", "late 0"):
        journal.add(name, name)
    Journal(path, {"size": 2, "other": 1}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {"early 0": "early 0"}
    Journal(path, {"size": 1, "other": 2}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {}


def test_after_an_interruption_other_settings_begin_anew(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(shards, "encode_shard", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(corpus, CONFIG, tmp_path, print)
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase=True), tmp_path, print)
    assert prepared.text("valid")[1] == [german.lower() for _, german in corpus.splits["valid"]()]


def test_a_folder_without_prepared_data_is_named(tmp_path):
    with pytest.raises(InputError, match="no prepared data here"):
        PreparedData.open(tmp_path / "nowhere")
    (tmp_path / "data.json").write_text("{broken")
    with pytest.raises(InputError, match=r"data\.json: damaged"):
        PreparedData.open(tmp_path)


def test_an_unknown_split_is_named(tmp_path):
    prepared = prepare(corpus_of(train=some_pairs(300, 1), valid=some_pairs(9, 2)), CONFIG, tmp_path, print)
    with pytest.raises(InputError, match="no split 'test' to read; valid: train, valid"):
        prepared.split("test")
    with pytest.raises(InputError, match="no split 'train' to read; valid: valid"):
        prepared.text("train")


def test_training_pairs_that_do_not_fit_are_dropped_and_counted_but_no_others(tmp_path):
    long, lopsided = ("the cat " * 80, "die Katze " * 80), ("a", "die Katze sieht einen kleinen Hund und große Bäume")
    unfit = [("big " * 99, "große " * 99), ("x" * 100_000, "y"), ("trees", lopsided[1].upper() + " der Straße")]
    corpus = corpus_of(train=[*some_pairs(300, 1), *unfit], valid=[long, lopsided, ("x" * 100_000, "")])
    prepared = prepare(corpus, CONFIG, tmp_path, print)
    counts = prepared.counts["train"]
    assert (counts["kept"], counts["too_long"], counts["length_ratio"]) == (300, 2, 1)
    train = prepared.split("train")
    assert len(train) == 300
    assert max(train.source_lengths.max(), train.target_lengths.max()) <= CONFIG.max_length
    assert prepared.split("valid").source_lengths.max() > CONFIG.max_length
    assert prepared.split("valid").target_lengths[-1] == 1  # the end symbol alone
    assert len(prepared.text("valid")[0]) == len(prepared.split("valid")) == 3


def test_absurd_characters_shift_no_line(tmp_path):
    absurd = [("a\rb\tc\u2028d", "e\x0bf\x85g"), ("zero\u200bwidth", "null\x00"), ("\ufeff", "\u200b")]
    prepared = prepare(
        corpus_of(train=[*some_pairs(300, 1), *absurd], test=absurd, valid=some_pairs(3, 2)), CONFIG, tmp_path, print
    )
    assert prepared.text("test") == (["a b c d", "zerowidth", ""], ["e f g", "null", ""])
    counts = prepared.counts["train"]
    assert (counts["invalid_characters"], counts["empty"], counts["held_out"]) == (1, 1, 1)


def test_a_validation_set_is_drawn_when_there_is_none(tmp_path):
    pairs = some_pairs(500, 1)
    prepared = prepare(corpus_of(train=pairs), CONFIG, tmp_path / "one", print)
    drawn = list(zip(*prepared.text("valid"), strict=True))
    assert len(drawn) == 5
    assert set(drawn) <= set(pairs)
    counts = prepared.counts["train"]
    assert counts["validation"] == 5
    assert counts["kept"] == len(prepared.split("train")) == 495 - counts["held_out"]
    other_seed = dataclasses.replace(CONFIG, seed=2)
    assert prepare(corpus_of(train=pairs), other_seed, tmp_path / "two", print).text("valid") != prepared.text("valid")


@pytest.mark.parametrize("has_valid", [True, False])
def test_no_evaluation_sentence_is_trained_on(tmp_path, has_valid):
    train = some_pairs(300, 1)
    test = [(train[7][0].upper() + "!", "anders"), ("different", train[9][1] + " ."), some_pairs(1, 5)[0]]
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
        ({"train": [], "valid": [("a", "b")]}, "no training pair is left after cleaning: 0 read"),
        ({"train": []}, "too few training pairs to draw a validation set from: 0 read"),
        ({"train": [("", "")] * 3, "valid": [("a", "b")]}, "no training pair is left.*3 read, 3 empty"),
        ({"train": [("a", "b")], "valid": []}, "the valid split is empty"),
        ({"train": [("a", "b")], "valid": [("c", "d")], "test": []}, "the test split is empty"),
    ],
)
def test_an_empty_corpus_is_bad_input(tmp_path, splits, message):
    with pytest.raises(InputError, match=message):
        prepare(corpus_of(**splits), CONFIG, tmp_path, print)


def test_a_vocabulary_that_the_text_does_not_allow_can_be_corrected(corpus, tmp_path):
    with pytest.raises(
        InputError, match="vocab_size=9000 is more than the text allows; the largest that works"
    ) as error:
        prepare(corpus, dataclasses.replace(CONFIG, vocab_size=9000), tmp_path, print)
    largest = int(str(error.value).split()[-1])
    assert (
        prepare(corpus, dataclasses.replace(CONFIG, vocab_size=largest), tmp_path, print).tokenizer.vocab_size
        == largest
    )


def test_lowercased_data_lowercases_what_is_asked_of_it(corpus, tmp_path):
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase=True), tmp_path, print)
    tokenizer = prepared.tokenizer
    source = prepared.text("test")[0][0]
    assert source == source.lower()
    assert [*tokenizer.encode(source.upper()), EOS_ID] == prepared.split("test").source_ids(np.array([0]))[0].tolist()
