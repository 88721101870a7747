"""Mirrors of directories in object storage, with fsspec's in-memory store."""

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
    """An empty store, and an unused local cache."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    new_disk(monkeypatch, tmp_path, "first")
    return files


def new_disk(monkeypatch, tmp_path: Path, name: str) -> None:
    """Makes new mirrors use an empty local cache, like a process on a different machine."""
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / name))
    monkeypatch.setattr(remote, "_MIRRORS", {})


def write(mirror: Mirror, **contents: str | None) -> None:
    """Writes files; "__" in a name stands for a slash, and None removes a file."""
    for name, text in contents.items():
        path = mirror.path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")


def contents(mirror: Mirror) -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in remote.files_of(mirror.path, hidden=True)}


def fetch_contents() -> dict[str, str]:
    """Returns what a new reader fetches."""
    mirror = Mirror(URL)
    mirror.fetch()
    return contents(mirror)


def states(memory) -> list[str]:
    return sorted(name for name in list(memory.store) if "/state/0" in name)


def test_published_files_can_be_fetched_on_another_machine(tmp_path, monkeypatch, memory):
    first = Mirror(URL)
    assert first.is_empty and first.path.name == "mine"
    write(first, config="1", checkpoints__step_1__weights="w", tensorboard__events="local")
    (first.path / ".a.tmp").write_text("left over", encoding="utf-8")
    first.publish()
    new_disk(monkeypatch, tmp_path, "second")
    assert fetch_contents() == {"config": "1", "checkpoints/step_1/weights": "w"}


def test_only_changed_files_are_uploaded_and_deleted_ones_are_removed(memory, monkeypatch):
    uploaded = []
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda *arguments: (uploaded.append(arguments[2]), put(*arguments)))
    mirror = Mirror(URL)
    write(mirror, a="1", b="2", c="3")
    mirror.publish()
    write(mirror, a="changed", b=None)
    mirror.publish()
    mirror.publish()
    assert [name.split("/")[1][0] for name in uploaded] == ["a", "b", "c", "a"]
    assert fetch_contents() == {"a": "changed", "c": "3"}
    assert len([name for name in memory.store if "/files/" in name]) == 2
    assert len(states(memory)) == 2


def test_a_file_that_grows_during_its_upload_is_published_unchanged(monkeypatch):
    mirror, put = Mirror(URL), Store.put
    (mirror.path / "metrics.jsonl").write_text("1\n", encoding="utf-8")

    def grow_and_put(store, path, name):
        with open(mirror.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write("2\n")
        put(store, path, name)

    monkeypatch.setattr(Store, "put", grow_and_put)
    mirror.publish()
    assert fetch_contents() == {"metrics.jsonl": "1\n"}
    monkeypatch.setattr(Store, "put", put)
    mirror.publish()
    assert fetch_contents() == {"metrics.jsonl": "1\n2\n"}


class Killed(BaseException):
    """Simulates the end of the process."""


def kill_at_request(
    real: Callable[..., Any], requests: list[str], last: int, is_carried_out: bool
) -> Callable[..., Any]:
    """Wraps a request of the store: the process ends at the last one, before or after the request is carried out."""

    def request(*arguments: Any) -> Any:
        requests.append(real.__name__)
        result = real(*arguments) if is_carried_out or len(requests) != last else None
        if len(requests) == last:
            raise Killed
        return result

    return request


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["before", "after"])
def test_a_kill_at_any_request_leaves_the_old_or_the_new_state(memory, monkeypatch, tmp_path, is_carried_out):
    """Kills the process at each request of `publish`, and then publishes the same from an empty cache."""
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
                patch.setattr(Store, name, kill_at_request(getattr(Store, name), requests, last, is_carried_out))
            with contextlib.suppress(Killed):
                writer.publish()
        assert len(requests) == min(last, 12)
        new_disk(monkeypatch, tmp_path, f"reader{last}")
        assert fetch_contents() in (old, new)
        next_writer = Mirror(URL)
        next_writer.fetch()
        write(next_writer, **{name: None for name in contents(next_writer) if name not in new}, **new)
        next_writer.publish()
        assert fetch_contents() == new


def test_concurrent_writers_lose_no_files(monkeypatch):
    first, second = Mirror(URL), Mirror(URL)
    assert first.path != second.path
    write(first, a="1", b="1")
    first.publish()
    second.fetch()
    create = Store.create

    def publish_and_create(store, name, value):
        monkeypatch.setattr(Store, "create", create)
        write(first, b=None, c="1")
        first.publish()
        return create(store, name, value)

    write(second, d="2")
    monkeypatch.setattr(Store, "create", publish_and_create)
    second.publish()
    assert fetch_contents() == {"a": "1", "c": "1", "d": "2"}


def test_a_reader_gets_newer_files_if_they_are_replaced_meanwhile(monkeypatch):
    writer, get = Mirror(URL), Store.get
    write(writer, a="1", b="1")
    writer.publish()

    def replace_and_get(*arguments):
        monkeypatch.setattr(Store, "get", get)
        write(writer, a="2", b="2")
        writer.publish()
        return get(*arguments)

    monkeypatch.setattr(Store, "get", replace_and_get)
    assert fetch_contents() == {"a": "2", "b": "2"}


def test_files_that_were_not_fetched_are_only_removed_with_their_folder():
    mirror = Mirror(URL)
    write(mirror, steps__1__state="s", steps__1__weights="w", steps__2__state="s", steps__2__weights="w")
    mirror.publish()
    partial = Mirror(URL)
    partial.fetch(lambda names: [name for name in names if "weights" not in name])
    assert (partial.path / "steps" / "2").is_dir()
    partial.publish()
    assert len(fetch_contents()) == 4
    write(partial, steps__1__state=None)
    (partial.path / "steps" / "1").rmdir()
    partial.publish()
    assert fetch_contents() == {"steps/2/state": "s", "steps/2/weights": "w"}


def test_old_states_are_removed(memory):
    mirror = Mirror(URL)
    for number in range(30):
        write(mirror, a=str(number))
        mirror.publish()
    assert len(states(memory)) == remote._NUM_STATES and fetch_contents() == {"a": "29"}


@pytest.mark.parametrize("damage", ["missing", "half", "other"])
def test_a_missing_or_damaged_file_of_the_state_is_an_error(memory, damage):
    mirror = Mirror(URL)
    write(mirror, weights="12345678")
    mirror.publish()
    (name,) = (name for name in memory.store if "/files/" in name)
    memory.rm_file(name)
    if damage != "missing":
        memory.pipe_file(name, b"1234" if damage == "half" else b"12345679")
    reader = Mirror(URL)
    with pytest.raises(InputError, match=f"^{URL}/weights belongs to state [0-9]+, but is missing or damaged$"):
        reader.fetch()
    assert contents(reader) == {}


def test_an_incomplete_state_is_an_error(memory):
    mirror = Mirror(URL)
    write(mirror, a="1")
    mirror.publish()
    memory.pipe_file(states(memory)[0], b'{"files": {"a"')
    with pytest.raises(InputError, match=f"^{URL}/state/000000000001.json is damaged: "):
        Mirror(URL).fetch()


def test_a_full_disk_is_reported_and_leaves_no_partial_file(monkeypatch, tmp_path):
    mirror = Mirror(URL)
    write(mirror, a="1")
    mirror.publish()
    reader = Mirror(URL)

    def fail_with_full_disk(path, local):
        Path(local).write_text("half", encoding="utf-8")
        raise OSError(28, "No space left on device", local)

    monkeypatch.setattr(reader.store._files, "get_file", fail_with_full_disk, raising=False)
    message = f"{URL}: no space left in {reader.path}; T2T_KERAS_CACHE can name a different folder"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        reader.fetch()
    assert contents(reader) == {}


HOLDER = f"by process {os.getpid()} on .+, last heard from [0-9]+ s ago"
WAITING = f"{URL} is or was being trained {HOLDER}: waiting for a renewal of its lease, [0-9]+ s at most"


def test_the_error_for_a_second_trainer_names_the_first(monkeypatch):
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

        def end_lease(seconds: float) -> None:
            assert seconds == remote.LEASE_SECONDS / 60
            monkeypatch.setattr(remote.time, "sleep", lambda _: pytest.fail("waited although the lease had ended"))
            stack.close() if ends == "given back" else monkeypatch.setattr(remote, "LEASE_SECONDS", 0.0)

        monkeypatch.setattr(remote.time, "sleep", end_lease)
        with second.held(lines.append):
            write(second, a="1")
            second.publish()
    assert fetch_contents() == {"a": "1"} and re.fullmatch(WAITING, lines[0])
    assert [line.rpartition("; ")[2] for line in lines[1:]] == ["its lease is taken over"] * (ends == "not renewed")


def test_a_state_is_fetched_by_its_number(memory):
    """An older state can be fetched, unless one of its files has been removed."""
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
    with pytest.raises(InputError, match=f"^{URL}/a belongs to state [0-9]+, but is missing or damaged$"):
        reader.fetch(number=number)
    with pytest.raises(InputError, match=f"^{URL}/state/000000000007.json no longer exists; try again$"):
        reader.fetch(number=7)


def test_an_expired_lease_is_taken_over_and_its_former_holder_cannot_publish(monkeypatch):
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
    assert fetch_contents() == {"a": "2"}
    assert len(lines) == 1 and re.search(r"was being trained by process .+ its lease is taken over$", lines[0])


def test_a_lease_is_renewed(monkeypatch, memory):
    monkeypatch.setattr(remote, "LEASE_SECONDS", 0.01)
    with Mirror(URL).held(lambda line: None):
        wait_until(lambda: len(states(memory)) >= 5)  # Nothing is published, so each state is a renewal.
    assert json.loads(memory.cat_file(states(memory)[-1]))["lease"] is None


def test_an_unreachable_store_is_only_a_warning_during_training(monkeypatch, caplog):
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
    assert fetch_contents() == {"a": "1"}
    remote.publishing(mirror.path.parent)()  # does nothing for a folder that is not a mirror


def test_paths_of_a_mirror_have_urls(tmp_path):
    mirror = Mirror(f"{URL}/")
    assert remote.origin(mirror.path / "checkpoints") == f"{URL}/checkpoints"
    assert remote.origin(URL) == URL and remote.origin(tmp_path / "a") == str(tmp_path / "a")
    assert remote.with_urls(f"in {mirror.path}/a and {tmp_path}") == f"in {URL}/a and {tmp_path}"
    assert remote.local(URL) == str(mirror.path) and remote.local("data/mine") == "data/mine"
    write(mirror, steps__1__weights="1")
    assert remote.local(f"{URL}/steps/1") == str(mirror.path / "steps" / "1")
    for url in (f"{URL}2", f"{URL}/inside"):  # separate URLs
        assert remote.local(url) not in (f"{mirror.path}2", f"{mirror.path}/inside")
    assert remote.mirror_of(mirror.path / "a") is mirror and remote.mirror_of(tmp_path) is None


def test_a_store_without_exclusive_creation_is_rejected(monkeypatch):
    monkeypatch.setattr(Store, "create", lambda *_: True)
    expected = pytest.raises(InputError, match=f"^{URL}: this store replaces .+ runs are not safe in it$")
    with expected, Mirror(URL).held(lambda line: None):
        pass


def test_a_store_that_cannot_delete_still_accepts_updates(monkeypatch, caplog):
    """It warns only once."""

    def refuse(*_):
        raise InputError(f"{URL}: access denied")

    monkeypatch.setattr(Store, "remove", refuse)
    monkeypatch.setattr(remote, "_NUM_STATES", 1)
    mirror = Mirror(URL)
    with mirror.held(lambda line: None):
        for text in ("1", "2", None):
            write(mirror, a=text, b="b")
            mirror.publish()
    assert fetch_contents() == {"b": "b"}
    assert caplog.messages == [f"unused objects cannot be deleted: {URL}: access denied"]
