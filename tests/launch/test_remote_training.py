"""Runs in object storage that several workers train, each with folders of its own."""

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import remote_training
from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.machine.object_store import Store
from t2t_keras.machine.remote import Mirror
from t2t_keras.training.devices.cluster import WorkerLostError
from t2t_keras.training.devices.workers import Workers
from tests.s3_server import BUCKET, access_denied, s3_server
from tests.training import tiny_training, worker_processes

SETTINGS = {"config.json": "c", "vocab.model": "v"}
OLDER = {name: name for name in ("checkpoints/step_00000004/state.json", "checkpoints/step_00000004/weights.npz")}
NEWEST = {
    f"checkpoints/step_00000008/{name}": name for name in ("ema.npz", "optimizer.npz", "state.json", "weights.npz")
}
OTHERS = {"checkpoints/averaged_last2/weights.npz": "a", "metrics.jsonl": "m"}


class Meeting:
    """Where workers that are threads add up their numbers."""

    def __init__(self, count: int) -> None:
        self.count, self._barrier = count, threading.Barrier(count, timeout=600)
        self._values: dict[int, np.ndarray] = {}

    def abort(self) -> None:
        """Leaves nobody waiting for a worker that failed."""
        self._barrier.abort()

    def sum(self, index: int, values: np.ndarray) -> np.ndarray:
        self._values[index] = values
        self._barrier.wait()
        total: Any = sum(self._values.values())
        self._barrier.wait()
        return total


class ThreadWorkers(Workers):
    """A worker that is a thread."""

    def __init__(self, index: int, meeting: Meeting) -> None:
        self.count, self.index, self.is_chief, self._meeting = meeting.count, index, index == 0, meeting

    def sum(self, values: Sequence[int] | np.ndarray) -> np.ndarray:
        return self._meeting.sum(self.index, np.asarray(values, np.int64))


@pytest.fixture
def url(tmp_path, monkeypatch):
    """The URL of a run in a store; a folder, since fsspec's memory is none for threads."""
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path))
    monkeypatch.setattr(remote, "_MIRRORS", {})
    mirror = Mirror(f"file://{tmp_path}/store/run")
    write(mirror, {**SETTINGS, **OLDER, **NEWEST, **OTHERS})
    mirror.publish()
    return mirror.url


def write(mirror: Mirror, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        path = mirror.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def contents(mirror: Mirror) -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in remote.files_of(mirror.path)}


def published(url: str) -> dict[str, str]:
    mirror = Mirror(url)
    mirror.fetch()
    return contents(mirror)


def together(url: str, train: Callable[[Mirror, Workers], None], mirrors: Sequence[Mirror] = ()) -> list[Any]:
    """The errors that two workers ended with, or what they had fetched before they trained."""
    ends: list[Any] = [None, None]
    meeting, mirrors = Meeting(2), mirrors or [Mirror(url), Mirror(url)]

    def work(index: int) -> None:
        workers = ThreadWorkers(index, meeting)
        try:
            with remote_training.held(mirrors[index].path, workers):
                ends[index] = contents(mirrors[index])
                train(mirrors[index], workers)
        except Exception as error:
            ends[index] = error
            if not isinstance(error, InputError | WorkerLostError):
                meeting.abort()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def lines(ends: list[Any]) -> list[str]:
    return [f"{type(end).__name__}: {end}" for end in ends]


def lease(url: str) -> dict[str, Any] | None:
    return Mirror(url)._find_newest()[1]["lease"]


def add_step(mirror: Mirror, workers: Workers) -> None:
    """Each worker writes a checkpoint, as only the chief of a training does."""
    write(mirror, {"checkpoints/step_00000012/state.json": f"of worker {workers.index}"})


def test_each_worker_fetches_what_it_needs_and_the_chief_publishes(url):
    old = {name: text for name, text in OLDER.items() if not name.endswith(".npz")}
    all_but_arrays = {**SETTINGS, **old, **NEWEST, "metrics.jsonl": "m"}
    assert together(url, add_step) == [all_but_arrays, {**SETTINGS, **NEWEST}]
    new = {"checkpoints/step_00000012/state.json": "of worker 0"}
    assert published(url) == {**SETTINGS, **OLDER, **NEWEST, **OTHERS, **new} and lease(url) is None


def test_all_begin_from_the_state_that_the_chief_names(url, monkeypatch):
    """Whatever the second one had on its disk, and though others publish before it fetches."""
    stale = [Mirror(url), Mirror(url)]
    for mirror in stale:  # a checkpoint that was never published, and one that is not what was published
        write(mirror, {"checkpoints/step_00000016/weights.npz": "lost", "checkpoints/step_00000008/weights.npz": "old"})
    fetch, is_done = Mirror.fetch, threading.Event()

    def fetch_late(mirror: Mirror, choose: Any = list, number: int | None = None) -> None:
        if number is not None and not is_done.is_set():
            is_done.set()
            evaluation = Mirror(url)
            fetch(evaluation)
            write(evaluation, {"evaluation/test/scores.json": "s", "checkpoints/averaged_last2/weights.npz": "new"})
            evaluation.publish()
        fetch(mirror, choose, number)

    monkeypatch.setattr(Mirror, "fetch", fetch_late)
    first, second = together(url, lambda mirror, workers: None, stale)
    assert is_done.is_set() and second == {**SETTINGS, **NEWEST}
    assert {name: text for name, text in first.items() if name in second} == second
    assert "checkpoints/step_00000016/weights.npz" not in first


def test_where_the_chief_may_not_publish_all_end_with_its_line(url, monkeypatch):
    before = published(url)

    def refuse(*_: Any) -> None:
        raise InputError(f"{url}: access denied: PutObject")

    said = ["InputError: " + text + f"{url}: access denied: PutObject" for text in ("", "worker 0 failed: ")]
    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", refuse)  # from the beginning
        assert lines(together(url, add_step)) == said
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", refuse)  # at the end
        assert lines(together(url, add_step)) == said
    assert published(url) == before and lease(url) is None


def test_what_one_worker_cannot_fetch_ends_all(url, monkeypatch):
    get, mirrors = Store.get, [Mirror(url), Mirror(url)]

    def no_room(store: Store, name: str, path: Path) -> bool:
        if store is mirrors[1].store:
            raise InputError(f"{url}: no space left in {path.parent}")
        return get(store, name, path)

    monkeypatch.setattr(Store, "get", no_room)
    first, second = together(url, add_step, mirrors)
    assert str(second).startswith(f"{url}: no space left in ")
    assert str(first) == f"worker 1 failed: {remote.with_urls(str(second))}"
    assert lease(url) is None


def test_a_lost_worker_leaves_what_was_saved_and_no_lease(url):
    """So that the next start need not wait until the lease ends."""

    def lose(mirror: Mirror, workers: Workers) -> None:
        add_step(mirror, workers)
        raise WorkerLostError(f"worker {workers.index} stops")

    assert lines(together(url, lose)) == ["WorkerLostError: worker 0 stops", "WorkerLostError: worker 1 stops"]
    assert published(url)["checkpoints/step_00000012/state.json"] == "of worker 0" and lease(url) is None


def test_weights_that_were_withdrawn_are_published_as_gone(url):
    def withdraw(mirror: Mirror, workers: Workers) -> None:
        for name in NEWEST:
            (mirror.path / name).unlink()
        (mirror.path / "checkpoints" / "step_00000008").rmdir()
        raise InputError("diverged")

    assert lines(together(url, withdraw)) == ["InputError: diverged"] * 2
    assert published(url) == {**SETTINGS, **OLDER, **OTHERS}


def test_a_store_that_is_down_too_does_not_hide_why_training_ended(url, monkeypatch, caplog):
    def refuse(*_: Any) -> None:
        raise InputError(f"{url}: no answer")

    def diverge(mirror: Mirror, workers: Workers) -> None:
        add_step(mirror, workers)
        monkeypatch.setattr(Store, "put", refuse)
        raise InputError("diverged")

    assert lines(together(url, diverge)) == ["InputError: diverged"] * 2
    assert caplog.messages == [f"not published: {url}: no answer"] and lease(url) is None


def test_an_export_cannot_be_trained(url, tmp_path):
    (tmp_path / "store" / "run" / "1").mkdir()
    (tmp_path / "store" / "run" / "1" / "saved_model.pb").write_bytes(b"graph")
    said = f"{url} holds an exported model, which cannot be trained; use a different --model_dir"
    assert lines(together(url, add_step)) == [f"InputError: {said}", f"InputError: worker 0 failed: {said}"]


def test_a_folder_of_this_machine_is_left_alone(tmp_path):
    with pytest.raises(InputError, match="^any$"), remote_training.held(tmp_path, ThreadWorkers(0, Meeting(1))):
        raise InputError("any")
    assert list(tmp_path.iterdir()) == []


STEPS = 12
SIZES = {"max_steps": STEPS, "checkpoint_steps": 4, "validation_steps": 8, "keep_checkpoints": 2}
MODEL = {"dropout_rate": 0.0}  # replicas draw differently


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Data on this disk and in a bucket of a server."""
    folder = tmp_path_factory.mktemp("workers")
    data = tiny_training.make_data(folder)
    with s3_server():
        with mirror_on(folder / "writer", f"{BUCKET}/data") as mirror:
            shutil.copytree(data.directory, mirror.path, dirs_exist_ok=True)
            mirror.publish()
        yield data


def fetched(folder: Path, url: str) -> Path:
    """What is published, on a disk of its own."""
    with mirror_on(folder / "reader", url) as mirror:
        mirror.fetch()
    return mirror.path


@contextlib.contextmanager
def mirror_on(disk: Path, url: str) -> Iterator[Mirror]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T2T_KERAS_CACHE", str(disk))
        yield Mirror(url)


def train_together(
    folder: Path, model_dir: str | Path, data: Any, data_dir: str = f"{BUCKET}/data", **of_one: dict[str, str]
) -> tuple[list[int], list[str]]:
    """How two workers end, each on an empty disk, and what they write; `worker_0` and `worker_1` have environments."""
    flags = tiny_training.launch_flags(model_dir, data, model=MODEL, **SIZES)
    flags += [f"--data_dir={data_dir}", f"--extension={Path(__file__).with_name('killing.py')}"]
    environments = worker_processes.tf_config(2)
    for index, environment in enumerate(environments):
        environment |= {"T2T_KERAS_CACHE": str(folder / f"disk_{index}"), **of_one.get(f"worker_{index}", {})}
    quickly = (str(worker_processes.HERE / "launch_quickly.py"),)
    with worker_processes.running([flags] * 2, folder, environments, program=quickly) as workers:
        return workers.end(), [workers.output(index) for index in range(2)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, prepared):
    """A run of two workers that share no disk."""
    folder, url = tmp_path_factory.mktemp("undisturbed"), f"{BUCKET}/undisturbed"
    statuses, outputs = train_together(folder, url, prepared)
    assert statuses == [0, 0], outputs
    return fetched(folder, url)


@pytest.mark.integration
def test_two_workers_that_share_no_disk_equal_one_process(tmp_path, prepared, undisturbed):
    assert tiny_training.train(tmp_path / "alone", prepared, model=MODEL, **SIZES).step == STEPS
    tiny_training.assert_same_numbers(undisturbed, tmp_path / "alone")
    assert tiny_training.saved_steps(undisturbed) == tiny_training.saved_steps(tmp_path / "alone")


@pytest.mark.integration
@pytest.mark.slow
def test_killed_workers_go_on_on_empty_disks_as_if_nothing_had_been(tmp_path, prepared, undisturbed):
    """First the second worker, then the chief in an upload."""
    url = f"{BUCKET}/killed"
    statuses, outputs = train_together(tmp_path / "first", url, prepared, worker_1={"CALLS": "9"})
    assert statuses == [75, 9], outputs
    assert tiny_training.saved_steps(fetched(tmp_path / "first", url)) == [4]
    statuses, outputs = train_together(tmp_path / "second", url, prepared, worker_0={"UPLOADS": "7"})
    assert statuses == [9, 75] and "lease" not in outputs[0] + outputs[1], outputs  # it was given back
    statuses, outputs = train_together(tmp_path / "third", url, prepared)
    assert statuses == [0, 0], outputs
    assert "its lease is taken over" in outputs[0] and "lease" not in outputs[1]
    killed = fetched(tmp_path / "third", url)
    tiny_training.assert_same_end(killed, undisturbed, STEPS)
    assert tiny_training.records(killed, "valid") == tiny_training.records(undisturbed, "valid")
    assert tiny_training.saved_steps(killed) == tiny_training.saved_steps(undisturbed)


@pytest.mark.integration
@pytest.mark.slow
def test_workers_whose_chief_has_no_access_end_with_its_line(tmp_path, prepared):
    with access_denied():
        statuses, outputs = train_together(tmp_path, f"{BUCKET}/denied", prepared, str(prepared.directory))
    said = [output.splitlines()[-1] for output in outputs]
    assert statuses == [1, 1] and said[0].startswith(f"error: {BUCKET}/denied: access denied: ")
    assert said[1] == said[0].replace("error: ", "error: worker 0 failed: ")
