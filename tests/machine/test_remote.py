"""Mirrors of folders in object storage, in fsspec's memory."""

import contextlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.machine.locking import BusyError
from t2t_keras.machine.object_store import Store
from t2t_keras.machine.remote import LeaseLostError, Mirror
from tests.waiting import wait_until

URL = "memory://bucket/runs/mine"


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    """An empty store, and a disk that no other test used."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    new_disk(monkeypatch, tmp_path, "first")
    return files


def new_disk(monkeypatch, tmp_path: Path, name: str) -> None:
    """What is mirrored from now on is mirrored on an empty disk, as by a process on another machine."""
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / name))
    monkeypatch.setattr(remote, "_MIRRORS", {})


def write(mirror: Mirror, **contents: str | None) -> None:
    """Writes files, with __ for a slash and _ for a dot; None removes one."""
    for name, text in contents.items():
        path = mirror.path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")


def contents(mirror: Mirror) -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in remote.files_of(mirror.path, hidden=True)}


def fetched() -> dict[str, str]:
    """What a reader sees at this moment."""
    mirror = Mirror(URL)
    mirror.fetch()
    return contents(mirror)


def states(memory) -> list[str]:
    return sorted(name for name in list(memory.store) if "/state/0" in name)


def test_what_is_published_is_fetched_elsewhere(tmp_path, monkeypatch, memory):
    first = Mirror(URL)
    assert first.is_empty and first.path.name == "mine"
    write(first, config="1", checkpoints__step_1__weights="w", tensorboard__events="local")
    (first.path / ".a.tmp").write_text("left over", encoding="utf-8")
    first.publish()
    new_disk(monkeypatch, tmp_path, "second")
    assert fetched() == {"config": "1", "checkpoints/step_1/weights": "w"}


def test_only_what_changed_is_uploaded_and_what_is_gone_is_removed(memory, monkeypatch):
    uploaded = []
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda *each: (uploaded.append(each[2]), put(*each)))
    mirror = Mirror(URL)
    write(mirror, a="1", b="2", c="3")
    mirror.publish()
    write(mirror, a="changed", b=None)
    mirror.publish()
    mirror.publish()
    assert [name.split("/")[1][0] for name in uploaded] == ["a", "b", "c", "a"]
    assert fetched() == {"a": "changed", "c": "3"}
    assert len([name for name in memory.store if "/files/" in name]) == 2
    assert len(states(memory)) == 2


def test_a_file_that_grows_while_it_is_uploaded_is_published_as_it_was(monkeypatch):
    mirror, put = Mirror(URL), Store.put
    (mirror.path / "metrics.jsonl").write_text("1\n", encoding="utf-8")

    def grow(store, path, name):
        with open(mirror.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write("2\n")
        put(store, path, name)

    monkeypatch.setattr(Store, "put", grow)
    mirror.publish()
    assert fetched() == {"metrics.jsonl": "1\n"}
    monkeypatch.setattr(Store, "put", put)
    mirror.publish()
    assert fetched() == {"metrics.jsonl": "1\n2\n"}


class Killed(BaseException):
    """The process ends here."""


def killing(real: Callable[..., Any], requests: list[str], last: int, done: bool) -> Callable[..., Any]:
    """A kind of request during the last of which the process ends, before or after it is done."""

    def request(*arguments: Any) -> Any:
        requests.append(real.__name__)
        result = real(*arguments) if done or len(requests) != last else None
        if len(requests) == last:
            raise Killed
        return result

    return request


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_any_request_a_reader_sees_the_old_or_the_new(memory, monkeypatch, tmp_path, done):
    """For each of the requests that publishing makes; then the same is published from an empty disk."""
    old = {f"file{number}": "old" for number in range(9)}
    new = {"file0": "new", **{f"file{number}": "new" for number in range(3, 12)}}
    for last in range(1, 21):
        memory.store.clear()
        new_disk(monkeypatch, tmp_path, f"writer{last}")
        writer = Mirror(URL)
        write(writer, **old)
        writer.publish()
        write(writer, file1=None, file2=None, **new)
        requests: list[str] = []
        with monkeypatch.context() as patch:
            for name in ("put", "create", "remove"):
                patch.setattr(Store, name, killing(getattr(Store, name), requests, last, done))
            with contextlib.suppress(Killed):
                writer.publish()
        assert len(requests) == min(last, 12)
        new_disk(monkeypatch, tmp_path, f"reader{last}")
        assert fetched() in (old, new)
        again = Mirror(URL)
        again.fetch()
        write(again, **{name: None for name in contents(again) if name not in new}, **new)
        again.publish()
        assert fetched() == new


def test_two_writers_at_once_lose_nothing(monkeypatch):
    one, other = Mirror(URL), Mirror(URL)
    assert one.path != other.path
    write(one, a="1", b="1")
    one.publish()
    other.fetch()
    create = Store.create

    def late(store, name, value):
        monkeypatch.setattr(Store, "create", create)
        write(one, b=None, c="1")
        one.publish()
        return create(store, name, value)

    write(other, d="2")
    monkeypatch.setattr(Store, "create", late)
    other.publish()
    assert fetched() == {"a": "1", "c": "1", "d": "2"}


def test_a_reader_whose_files_are_replaced_meanwhile_gets_the_newer_ones(monkeypatch):
    writer, get = Mirror(URL), Store.get
    write(writer, a="1", b="1")
    writer.publish()

    def replacing(*arguments):
        monkeypatch.setattr(Store, "get", get)
        write(writer, a="2", b="2")
        writer.publish()
        return get(*arguments)

    monkeypatch.setattr(Store, "get", replacing)
    assert fetched() == {"a": "2", "b": "2"}


def test_what_was_not_fetched_is_removed_with_its_folder_alone():
    mirror = Mirror(URL)
    write(mirror, steps__1__state="s", steps__1__weights="w", steps__2__state="s", steps__2__weights="w")
    mirror.publish()
    other = Mirror(URL)
    other.fetch(lambda names: [name for name in names if "weights" not in name])
    assert (other.path / "steps" / "2").is_dir()
    other.publish()
    assert len(fetched()) == 4
    write(other, steps__1__state=None)
    (other.path / "steps" / "1").rmdir()
    other.publish()
    assert fetched() == {"steps/2/state": "s", "steps/2/weights": "w"}


def test_old_states_are_removed(memory):
    mirror = Mirror(URL)
    for number in range(30):
        write(mirror, a=str(number))
        mirror.publish()
    assert len(states(memory)) == remote._NUM_STATES and fetched() == {"a": "29"}


@pytest.mark.parametrize("damage", ["missing", "half", "other"])
def test_a_file_that_is_not_what_the_state_names(memory, damage):
    mirror = Mirror(URL)
    write(mirror, weights="12345678")
    mirror.publish()
    (name,) = (name for name in memory.store if "/files/" in name)
    memory.rm_file(name)
    if damage != "missing":
        memory.pipe_file(name, b"1234" if damage == "half" else b"12345679")
    reader = Mirror(URL)
    with pytest.raises(InputError, match=f"^{URL}/weights is part of the newest state, but is missing or damaged$"):
        reader.fetch()
    assert contents(reader) == {}


def test_a_state_that_is_half_written(memory):
    mirror = Mirror(URL)
    write(mirror, a="1")
    mirror.publish()
    memory.pipe_file(states(memory)[0], b'{"files": {"a"')
    with pytest.raises(InputError, match=f"^{URL}/state/000000000001.json is damaged: "):
        Mirror(URL).fetch()


def test_a_full_disk_is_one_line_and_leaves_no_part(monkeypatch, tmp_path):
    mirror = Mirror(URL)
    write(mirror, a="1")
    mirror.publish()
    reader = Mirror(URL)

    def full(path, local):
        Path(local).write_text("half", encoding="utf-8")
        raise OSError(28, "No space left on device", local)

    monkeypatch.setattr(reader.store._files, "get_file", full, raising=False)
    message = f"{URL}: no space left in {reader.path}; T2T_KERAS_CACHE can name a different folder"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        reader.fetch()
    assert contents(reader) == {}


HOLDER = f"by process {os.getpid()} on .+, last heard of [0-9]+ s ago"
WAITING = f"{URL} is or was being trained {HOLDER}: waiting for a renewal of its lease, [0-9]+ s at most"


def test_the_second_trainer_gets_the_name_of_the_first_once_that_is_heard_of_again(monkeypatch):
    monkeypatch.setattr(remote, "_RENEWALS", 1e5)
    first, second = Mirror(URL), Mirror(URL)
    lines: list[str] = []
    with first.held(lines.append):
        expected = f"^{URL} is already being trained {HOLDER}$"
        with pytest.raises(BusyError, match=expected), second.held(lines.append):
            pass
        write(first, a="1")
        first.publish()
    assert len(lines) == 1 and re.fullmatch(WAITING, lines[0])
    with second.held(lines.append):
        second.fetch()
    assert contents(second) == {"a": "1"} and len(lines) == 1


@pytest.mark.parametrize("ends", ["given back", "not renewed"])
def test_a_second_trainer_waits_for_a_lease_that_ends(monkeypatch, ends):
    first, second = Mirror(URL), Mirror(URL)
    lines: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(first.held(lambda line: None))

        def end(seconds: float) -> None:
            assert seconds == remote.LEASE_SECONDS / 60
            monkeypatch.setattr(remote.time, "sleep", lambda _: pytest.fail("waits for nothing"))
            stack.close() if ends == "given back" else monkeypatch.setattr(remote, "LEASE_SECONDS", 0.0)

        monkeypatch.setattr(remote.time, "sleep", end)
        with second.held(lines.append):
            write(second, a="1")
            second.publish()
    assert fetched() == {"a": "1"} and re.fullmatch(WAITING, lines[0])
    assert [line.rpartition("; ")[2] for line in lines[1:]] == ["its lease is taken over"] * (ends == "not renewed")


def test_a_state_is_fetched_by_its_number(memory):
    """As another machine got it, though there is a newer one by now; and not at all once a file of it is gone."""
    writer, reader = Mirror(URL), Mirror(URL)
    assert writer.number == 0
    write(writer, a="1", b="1")
    writer.publish()
    number = writer.number
    write(writer, a="2", c="2")
    writer.publish()
    assert (number, Mirror(URL).number) == (1, 2)
    reader.fetch(lambda names: ["b"], number)
    assert contents(reader) == {"b": "1"}
    with pytest.raises(InputError, match=f"^{URL}/a is part of the newest state, but is missing or damaged$"):
        reader.fetch(number=number)
    with pytest.raises(InputError, match=f"^{URL}/state/000000000007.json no longer exists; try again$"):
        reader.fetch(number=7)


def test_a_lease_that_has_ended_is_taken_over_and_its_former_holder_publishes_nothing(monkeypatch):
    first, second = Mirror(URL), Mirror(URL)
    lines: list[str] = []
    with first.held(lines.append):
        write(first, a="1")
        first.publish()
        monkeypatch.setattr(remote, "LEASE_SECONDS", 0.0)
        with second.held(lines.append):
            second.fetch()
            write(second, a="2")
            second.publish()
            write(first, a="late")
            with pytest.raises(LeaseLostError, match=f"^{URL} was taken over by process {os.getpid()} on "):
                first.publish()
            with pytest.raises(LeaseLostError):
                remote.publishing(first.path)()
        with pytest.raises(LeaseLostError, match="which has ended"):
            first.publish()
    assert fetched() == {"a": "2"}
    assert len(lines) == 1 and re.search(r"was being trained by process .+ its lease is taken over$", lines[0])


def test_a_lease_is_renewed(monkeypatch, memory):
    monkeypatch.setattr(remote, "LEASE_SECONDS", 0.01)
    with Mirror(URL).held(lambda line: None):
        wait_until(lambda: len(states(memory)) >= 5)  # each is a renewal, as nothing is published
    assert json.loads(memory.cat_file(states(memory)[-1]))["lease"] is None


def test_a_store_that_does_not_answer_is_a_warning_while_training_goes_on(monkeypatch, caplog):
    mirror, put = Mirror(URL), Store.put
    write(mirror, a="1")

    def refuse(*_):
        raise InputError(f"{URL}: no answer")

    monkeypatch.setattr(Store, "put", refuse)
    publish = remote.publishing(mirror.path)
    publish()
    assert caplog.messages == [f"not published: {URL}: no answer; trying again with the next checkpoint"]
    monkeypatch.setattr(Store, "put", put)
    publish()
    assert fetched() == {"a": "1"}
    remote.publishing(mirror.path.parent)()  # of a folder that is no mirror


def test_paths_of_a_mirror_have_urls(tmp_path):
    mirror = Mirror(f"{URL}/")
    assert remote.origin(mirror.path / "checkpoints") == f"{URL}/checkpoints"
    assert remote.origin(URL) == URL and remote.origin(tmp_path / "a") == str(tmp_path / "a")
    assert remote.with_urls(f"in {mirror.path}/a and {tmp_path}") == f"in {URL}/a and {tmp_path}"
    assert remote.local(URL) == str(mirror.path) and remote.local("data/mine") == "data/mine"
    write(mirror, steps__1__weights="1")
    assert remote.local(f"{URL}/steps/1") == str(mirror.path / "steps" / "1")
    for other in (f"{URL}2", f"{URL}/inside"):  # of their own
        assert remote.local(other) not in (f"{mirror.path}2", f"{mirror.path}/inside")
    assert remote.mirror_of(mirror.path / "a") is mirror and remote.mirror_of(tmp_path) is None


def test_a_store_without_exclusive_creation_is_refused(monkeypatch):
    monkeypatch.setattr(Store, "create", lambda *_: True)
    expected = pytest.raises(InputError, match=f"^{URL}: this store replaces .+ runs are not safe in it$")
    with expected, Mirror(URL).held(lambda line: None):
        pass


def test_a_store_that_deletes_nothing_takes_all_updates(monkeypatch, caplog):
    """One warning, for each update would say the same."""

    def refuse(*_):
        raise InputError(f"{URL}: access denied")

    monkeypatch.setattr(Store, "remove", refuse)
    monkeypatch.setattr(remote, "_NUM_STATES", 1)
    mirror = Mirror(URL)
    with mirror.held(lambda line: None):
        for text in ("1", "2", None):
            write(mirror, a=text, b="b")
            mirror.publish()
    assert fetched() == {"b": "b"}
    assert caplog.messages == [f"unused objects cannot be deleted: {URL}: access denied"]
