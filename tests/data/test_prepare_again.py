"""A folder that was prepared before, completely or partly, with the same or different settings."""

import concurrent.futures
import dataclasses
import os
import pathlib
import threading

import pytest

from t2t_keras.data import checksums, shards
from t2t_keras.data import prepare as prepare_module
from t2t_keras.data.journal import Journal, write_json
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.machine import locking
from tests.data.small_corpora import CONFIG, assert_same_folder, corpus_of, random_pairs, write_corpus


def test_prepared_data_is_reused_without_reading_the_corpus(corpus, tmp_path, capsys):
    prepare(corpus, CONFIG, tmp_path, print)

    def unreadable():
        raise AssertionError("read again")

    again = prepare(dataclasses.replace(corpus, splits=dict.fromkeys(corpus.splits, unreadable)), CONFIG, tmp_path)
    assert len(again.split("train")) == 400
    assert "already prepared" in capsys.readouterr().out


def test_different_settings_or_text_are_rejected_with_the_difference(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path, print)
    changed = dataclasses.replace(CONFIG, vocab_size=330, lowercase="both")
    with pytest.raises(InputError, match=r"different settings \(lowercase: 'none' -> 'both', vocab_size: 320 -> 330\)"):
        prepare(corpus, changed, tmp_path, print)
    with pytest.raises(InputError, match=r"different settings \(text: '1' -> '2'\)"):
        prepare(dataclasses.replace(corpus, identity={"text": "2"}), CONFIG, tmp_path, print)


def test_the_training_text_is_identified_by_its_content(tmp_path):
    """A run records this identity and does not resume with a different text of the same lengths."""
    texts = {}
    for name, digit in (("one", "1"), ("copy", "1"), ("other", "2")):
        folder = tmp_path / name
        folder.mkdir()
        files = folder / "a.en", folder / "a.de"
        for path, word in zip(files, ("dog", "Hund"), strict=True):
            path.write_text("".join(f"{word} {n:03} {digit}\n" for n in range(200)))
        config = dataclasses.replace(CONFIG, vocab_type="byte", vocab_size=270)
        data = prepare(corpora.files({"train": files}), config, folder / "data", print)
        lengths = data.split("train").source_lengths.tolist(), data.split("train").target_lengths.tolist()
        texts[name] = lengths, data.training_text
    assert texts["one"] == texts["copy"] and texts["one"][0] == texts["other"][0]
    assert texts["one"][1] != texts["other"][1]


@pytest.mark.parametrize("has_valid", [True, False])
def test_interrupted_preparation_repeats_no_step(tmp_path, monkeypatch, has_valid):
    """Interrupts the preparation after each step, and compares the bytes with an uninterrupted one."""
    pairs = random_pairs(400, 1)
    splits = {"train": [*pairs, *pairs[::7]], "test": random_pairs(10, 3)}
    corpus = corpus_of(**splits, **({"valid": random_pairs(20, 2)} if has_valid else {}))
    prepare(corpus, CONFIG, tmp_path / "whole", print, shard_pairs=150)
    add, completed = Journal.add, []

    def add_and_interrupt(journal, name, result):
        add(journal, name, result)
        completed.append(name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", add_and_interrupt)
        for _ in range(100):
            try:
                prepare(corpus, CONFIG, tmp_path / "data", print, shard_pairs=150)
                break
            except KeyboardInterrupt:
                with pytest.raises(InputError, match="was interrupted; run launch.prepare_data again"):
                    PreparedData.open(tmp_path / "data")
    by_shard = [f"{step} {number}" for step in ("cleaning", "selecting", "encoding train") for number in range(4)]
    assert sorted(completed) == sorted(
        [*by_shard, "evaluation text", "reading", "vocabulary", "encoding valid", "encoding test"]
    )
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


@pytest.mark.parametrize("contents", ["{", "[]", '{"a": 1}', '{"settings": {}, "done": 3}'])
def test_a_damaged_journal_is_an_error(corpus, tmp_path, contents):
    (tmp_path / "preparing.json").write_text(contents)
    with pytest.raises(InputError, match=r"preparing\.json is damaged"):
        prepare(corpus, CONFIG, tmp_path, print)


def test_partial_files_are_removed(corpus, tmp_path):
    (tmp_path / ".train.00000.source.txt.17.tmp").write_text("half a sen")
    (tmp_path / "train.00001-of-00002.source.ids.npy").write_text("of other settings")
    prepare(corpus, CONFIG, tmp_path, print)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp" or "-of-" in path.name]


def test_a_journal_left_by_a_kill_at_the_end_is_removed(corpus, tmp_path, monkeypatch):
    def write_and_interrupt(path, values):
        write_json(path, values)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prepare_module, "write_json", write_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, CONFIG, tmp_path / "data", print)
    assert (tmp_path / "data/data.json").exists() and (tmp_path / "data/preparing.json").exists()
    prepare(corpus, CONFIG, tmp_path / "data", print)
    prepare(corpus, CONFIG, tmp_path / "whole", print)
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


def test_two_preparations_of_one_folder_do_not_overlap(corpus, tmp_path, monkeypatch):
    """The second one waits for the data of the first, and fails after its time limit."""
    has_started, may_continue = threading.Event(), threading.Event()

    def read_slowly():
        has_started.set()
        assert may_continue.wait(60)
        return corpus.splits["train"]()

    slow = dataclasses.replace(corpus, splits={**corpus.splits, "train": read_slowly})
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        first = threads.submit(prepare, slow, CONFIG, tmp_path, print)
        assert has_started.wait(60)
        with monkeypatch.context() as patched:
            patched.setattr(locking, "_PATIENCE_SECONDS", 0.0)
            message = (
                rf"{tmp_path} is already being prepared by process {os.getpid()} on .*; use a different --data_dir"
            )
            with pytest.raises(InputError, match=message):
                prepare(corpus, CONFIG, tmp_path, print)
        monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 60.0)
        lines = []
        second = threads.submit(prepare, corpus, CONFIG, tmp_path, lines.append)
        may_continue.set()
        assert first.result(60).counts == second.result(60).counts
    assert lines == [f"{tmp_path}: already prepared"]


@pytest.mark.parametrize(
    ("name", "is_rejected"),
    [
        ("valid.source.txt", True),
        ("test.target.txt", True),
        ("train.00012.source.txt", True),
        ("vocab.model", True),
        ("train.source.txt", False),
        ("train.10k.source.txt", False),
        ("train.2016.en.target.txt", False),
        ("text.en", False),
    ],
)
def test_input_files_that_would_be_overwritten_are_rejected_before_writing(tmp_path, monkeypatch, name, is_rejected):
    write_corpus(tmp_path, train=random_pairs(300, 1))
    path = tmp_path / "data" / name
    path.parent.mkdir()
    os.rename(tmp_path / "train.en", path)
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    text = path.read_bytes()
    unrelated_files = [path.with_name(name) for name in ("train.1.features.npy", "train.2019-2021.source.txt")]
    for unrelated in unrelated_files:
        unrelated.write_bytes(b"of somebody else")
    for source_path in (path, tmp_path / "link", pathlib.Path("data", "..", "data", name)):
        corpus = corpora.files({"train": (source_path, tmp_path / "train.de")})
        if is_rejected:
            message = (
                rf"{source_path}: the preparation would replace it, because {tmp_path}/data gets a file of that name"
            )
            with pytest.raises(InputError, match=message):
                prepare(corpus, CONFIG, tmp_path / "data", print)
            assert {*path.parent.iterdir()} == {path, *unrelated_files}
        else:
            assert len(prepare(corpus, CONFIG, tmp_path / "data", print).split("train")) > 200
        assert path.read_bytes() == text
        assert {unrelated.read_bytes() for unrelated in unrelated_files} == {b"of somebody else"}


def test_unchanged_text_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_SETTLED_SECONDS", -60.0)  # as if written long ago
    corpus = write_corpus(tmp_path, train=random_pairs(300, 1), valid=random_pairs(5, 2))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "checksum", lambda path: pytest.fail(f"{path} was read"))
        prepare(corpus, CONFIG, tmp_path / "data", print)
    changed = write_corpus(tmp_path, train=random_pairs(300, 7), valid=random_pairs(5, 2))
    with pytest.raises(InputError, match=r"different settings \(train_source: \w+... -> \w+..., train_target: [^,]*\)"):
        prepare(changed, CONFIG, tmp_path / "data", print)


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ({"vocab_size": 330}, {"vocabulary", "encoding"}),
        ({"vocab_type": "char"}, {"vocabulary", "encoding"}),
        ({"max_length_ratio": 5.0}, {"encoding"}),
        ({"final_marks": True, "truecase": True}, {"vocabulary", "encoding"}),
        ({"lowercase": "both"}, {"evaluation", "cleaning", "reading", "selecting", "vocabulary", "encoding"}),
        ({"vocab_size": 330, "seed": 2}, {"evaluation", "cleaning", "reading", "selecting", "vocabulary", "encoding"}),
    ],
)
def test_a_changed_setting_repeats_only_dependent_steps(corpus, tmp_path, monkeypatch, changes, repeated):
    def write_or_interrupt(path, values):
        if path.name == "data.json":
            raise KeyboardInterrupt
        write_json(path, values)

    with monkeypatch.context() as patched:
        patched.setattr(prepare_module, "write_json", write_or_interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, CONFIG, tmp_path / "data", print, shard_pairs=150)
    add, steps = Journal.add, set()
    monkeypatch.setattr(
        Journal, "add", lambda journal, name, result: (steps.add(name.split()[0]), add(journal, name, result))
    )
    settings = dataclasses.replace(CONFIG, **changes)
    prepare(corpus, settings, tmp_path / "data", print, shard_pairs=150)
    assert steps == repeated
    prepare(corpus, settings, tmp_path / "whole", print, shard_pairs=150)
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


def test_different_settings_restart_an_interrupted_preparation(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(shards, "encode_shard", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(corpus, CONFIG, tmp_path, print)
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase="both"), tmp_path, print)
    assert prepared.text("valid")[1] == [german.lower() for _, german in corpus.splits["valid"]()]


def test_data_in_a_read_only_folder_is_reused(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path, train=random_pairs(300, 1))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    (tmp_path / "data" / ".lock").unlink()
    (tmp_path / "data" / "preparing.json").touch()  # as if killed at the end
    monkeypatch.setattr(prepare_module.os, "access", lambda path, mode: False)
    assert len(prepare(corpus, CONFIG, tmp_path / "data", print).split("train")) > 200
    assert not (tmp_path / "data" / ".lock").exists()


def test_steps_removed_for_changed_settings_do_not_return(tmp_path):
    """The journal removes outdated steps before files are replaced, so that a return to the first settings repeats
    them.
    """
    path, dependents = tmp_path / "journal", {"size": ("late",)}
    journal = Journal(path, {"size": 1, "other": 1}, dependents)
    for name in ("early 0", "late 0"):
        journal.add(name, name)
    Journal(path, {"size": 2, "other": 1}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {"early 0": "early 0"}
    Journal(path, {"size": 1, "other": 2}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {}
