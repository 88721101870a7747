"""A folder that was prepared before, wholly or in part, with the same settings or with others."""

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
from tests.data.small_corpora import CONFIG, assert_same_folder, corpus_of, files_of, some_pairs


def test_prepared_data_is_reused_without_reading_the_corpus(corpus, tmp_path, capsys):
    prepare(corpus, CONFIG, tmp_path, print)

    def unreadable():
        raise AssertionError("read again")

    again = prepare(dataclasses.replace(corpus, splits=dict.fromkeys(corpus.splits, unreadable)), CONFIG, tmp_path)
    assert len(again.split("train")) == 400
    assert "already prepared" in capsys.readouterr().out


def test_other_settings_or_another_text_are_refused_with_the_difference(corpus, tmp_path):
    prepare(corpus, CONFIG, tmp_path, print)
    other = dataclasses.replace(CONFIG, vocab_size=330, lowercase="both")
    with pytest.raises(InputError, match=r"different settings \(lowercase: 'none' -> 'both', vocab_size: 320 -> 330\)"):
        prepare(corpus, other, tmp_path, print)
    with pytest.raises(InputError, match=r"different settings \(text: '1' -> '2'\)"):
        prepare(dataclasses.replace(corpus, identity={"text": "2"}), CONFIG, tmp_path, print)


def test_a_training_text_is_told_from_another_of_the_same_lengths(tmp_path):
    """A run records it, and is not resumed with another."""
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


@pytest.mark.parametrize("contents", ["{", "[]", '{"a": 1}', '{"settings": {}, "done": 3}'])
def test_another_file_in_place_of_the_journal_is_named(corpus, tmp_path, contents):
    (tmp_path / "preparing.json").write_text(contents)
    with pytest.raises(InputError, match=r"preparing\.json is damaged"):
        prepare(corpus, CONFIG, tmp_path, print)


def test_what_was_cut_off_while_being_written_goes(corpus, tmp_path):
    (tmp_path / ".train.00000.source.txt.17.tmp").write_text("half a sen")
    (tmp_path / "train.00001-of-00002.source.ids.npy").write_text("of other settings")
    prepare(corpus, CONFIG, tmp_path, print)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp" or "-of-" in path.name]


def test_what_is_left_by_a_kill_at_the_very_end_goes(corpus, tmp_path, monkeypatch):
    def killed(path, values):
        write_json(path, values)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prepare_module, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, CONFIG, tmp_path / "data", print)
    assert (tmp_path / "data/data.json").exists() and (tmp_path / "data/preparing.json").exists()
    prepare(corpus, CONFIG, tmp_path / "data", print)
    prepare(corpus, CONFIG, tmp_path / "whole", print)
    assert_same_folder(tmp_path / "data", tmp_path / "whole")


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
            message = (
                rf"{tmp_path} is already being prepared by process {os.getpid()} on .*; use a different --data_dir"
            )
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
        ("vocab.model", True),
        ("train.source.txt", False),
        ("train.10k.source.txt", False),
        ("train.2016.en.target.txt", False),
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
    others = [path.with_name(name) for name in ("train.1.features.npy", "train.2019-2021.source.txt")]
    for other in others:
        other.write_bytes(b"of somebody else")
    for given in (path, tmp_path / "link", pathlib.Path("data", "..", "data", name)):
        corpus = corpora.files({"train": (given, tmp_path / "train.de")})
        if is_refused:
            message = rf"{given}: the preparation would replace it, because {tmp_path}/data gets a file of that name"
            with pytest.raises(InputError, match=message):
                prepare(corpus, CONFIG, tmp_path / "data", print)
            assert {*path.parent.iterdir()} == {path, *others}
        else:
            assert len(prepare(corpus, CONFIG, tmp_path / "data", print).split("train")) > 200
        assert path.read_bytes() == text
        assert {other.read_bytes() for other in others} == {b"of somebody else"}


def test_unchanged_text_is_not_read_again_to_see_that_it_is_unchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_SETTLED_SECONDS", -60.0)  # as if it had been written long ago
    corpus = files_of(tmp_path, train=some_pairs(300, 1), valid=some_pairs(5, 2))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "checksum", lambda path: pytest.fail(f"{path} was read"))
        prepare(corpus, CONFIG, tmp_path / "data", print)
    changed = files_of(tmp_path, train=some_pairs(300, 7), valid=some_pairs(5, 2))
    with pytest.raises(InputError, match=r"different settings \(train_source: \w+... -> \w+..., train_target: [^,]*\)"):
        prepare(changed, CONFIG, tmp_path / "data", print)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"vocab_size": 330}, {"vocabulary", "encoding"}),
        ({"vocab_type": "char"}, {"vocabulary", "encoding"}),
        ({"max_length_ratio": 5.0}, {"encoding"}),
        ({"final_marks": True, "truecase": True}, {"vocabulary", "encoding"}),
        ({"lowercase": "both"}, {"evaluation", "cleaning", "reading", "selecting", "vocabulary", "encoding"}),
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


def test_after_an_interruption_other_settings_begin_anew(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(shards, "encode_shard", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(corpus, CONFIG, tmp_path, print)
    prepared = prepare(corpus, dataclasses.replace(CONFIG, lowercase="both"), tmp_path, print)
    assert prepared.text("valid")[1] == [german.lower() for _, german in corpus.splits["valid"]()]


def test_data_in_a_folder_that_is_read_only_is_reused(tmp_path, monkeypatch):
    corpus = files_of(tmp_path, train=some_pairs(300, 1))
    prepare(corpus, CONFIG, tmp_path / "data", print)
    (tmp_path / "data" / ".lock").unlink()
    (tmp_path / "data" / "preparing.json").touch()  # left by a kill at the very end
    monkeypatch.setattr(prepare_module.os, "access", lambda path, mode: False)
    assert len(prepare(corpus, CONFIG, tmp_path / "data", print).split("train")) > 200
    assert not (tmp_path / "data" / ".lock").exists()


def test_outdated_steps_stay_outdated_if_the_next_try_is_killed_at_once(tmp_path):
    """The journal forgets before files are replaced: going back to the first settings does not bring them back."""
    path, dependents = tmp_path / "journal", {"size": ("late",)}
    journal = Journal(path, {"size": 1, "other": 1}, dependents)
    for name in ("early 0", "late 0"):
        journal.add(name, name)
    Journal(path, {"size": 2, "other": 1}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {"early 0": "early 0"}
    Journal(path, {"size": 1, "other": 2}, dependents)
    assert Journal(path, {"size": 1, "other": 1}, dependents).done == {}
