"""Runs in object storage that several workers train, each with separate folders."""

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
from tests.s3_server import BUCKET, s3_server
from tests.training import tiny_training, worker_processes

SETTINGS = {"config.json": "c", "vocab.model": "v"}
OLDER = {name: name for name in ("checkpoints/step_00000004/state.json", "checkpoints/step_00000004/weights.npz")}
NEWEST = {
    f"checkpoints/step_00000008/{name}": name for name in ("ema.npz", "optimizer.npz", "state.json", "weights.npz")
}
OTHERS = {"checkpoints/averaged_last2/weights.npz": "a", "metrics.jsonl": "m"}


class Sum:
    """Adds up the numbers of workers that are threads."""

    def __init__(self, count: int) -> None:
        self.count, self._barrier = count, threading.Barrier(count, timeout=600)
        self._values: dict[int, np.ndarray] = {}

    def abort(self) -> None:
        """Releases the workers that wait for a failed worker."""
        self._barrier.abort()

    def sum(self, index: int, values: np.ndarray) -> np.ndarray:
        self._values[index] = values
        self._barrier.wait()
        total: Any = sum(self._values.values())
        self._barrier.wait()
        return total


class ThreadWorkers(Workers):
    """A worker that runs in a thread."""

    def __init__(self, index: int, shared_sum: Sum) -> None:
        self.count, self.index, self.is_chief, self._sum = shared_sum.count, index, index == 0, shared_sum

    def sum(self, values: Sequence[int] | np.ndarray) -> np.ndarray:
        return self._sum.sum(self.index, np.asarray(values, np.int64))


@pytest.fixture
def url(tmp_path, monkeypatch):
    """The URL of a run in a folder; the in-memory store of fsspec does not support threads."""
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


def fetch_published(url: str) -> dict[str, str]:
    mirror = Mirror(url)
    mirror.fetch()
    return contents(mirror)


def train_in_threads(url: str, train: Callable[[Mirror, Workers], None], mirrors: Sequence[Mirror] = ()) -> list[Any]:
    """Trains with two workers; returns their errors, or the files that they fetched before training."""
    ends: list[Any] = [None, None]
    shared_sum, mirrors = Sum(2), mirrors or [Mirror(url), Mirror(url)]

    def work(index: int) -> None:
        workers = ThreadWorkers(index, shared_sum)
        try:
            with remote_training.held(mirrors[index].path, workers):
                ends[index] = contents(mirrors[index])
                train(mirrors[index], workers)
        except Exception as error:
            ends[index] = error
            if not isinstance(error, InputError | WorkerLostError):
                shared_sum.abort()

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
    """Writes a checkpoint on each worker, although only the chief publishes."""
    write(mirror, {"checkpoints/step_00000012/state.json": f"of worker {workers.index}"})


def test_workers_fetch_the_files_that_they_need(url):
    old = {name: text for name, text in OLDER.items() if not name.endswith(".npz")}
    all_but_arrays = {**SETTINGS, **old, **NEWEST, "metrics.jsonl": "m"}
    assert train_in_threads(url, add_step) == [all_but_arrays, {**SETTINGS, **NEWEST}]
    new = {"checkpoints/step_00000012/state.json": "of worker 0"}
    assert fetch_published(url) == {**SETTINGS, **OLDER, **NEWEST, **OTHERS, **new} and lease(url) is None


def test_workers_start_from_the_state_of_the_chief(url, monkeypatch):
    """The disk of the second worker may be stale, and other processes may publish before it fetches."""
    stale = [Mirror(url), Mirror(url)]
    for mirror in stale:  # with an unpublished checkpoint, and with one that differs from the published one
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
    first, second = train_in_threads(url, lambda mirror, workers: None, stale)
    assert is_done.is_set() and second == {**SETTINGS, **NEWEST}
    assert {name: text for name, text in first.items() if name in second} == second
    assert "checkpoints/step_00000016/weights.npz" not in first


def test_errors_of_the_chief_end_all_workers(url, monkeypatch):
    before = fetch_published(url)

    def refuse(*_: Any) -> None:
        raise InputError(f"{url}: access denied: PutObject")

    messages = ["InputError: " + text + f"{url}: access denied: PutObject" for text in ("", "worker 0 failed: ")]
    with monkeypatch.context() as patch:
        patch.setattr(Store, "create", refuse)  # at the start
        assert lines(train_in_threads(url, add_step)) == messages
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", refuse)  # at the end
        assert lines(train_in_threads(url, add_step)) == messages
    assert fetch_published(url) == before and lease(url) is None


def test_errors_of_a_worker_end_all_workers(url, monkeypatch):
    get, mirrors = Store.get, [Mirror(url), Mirror(url)]

    def no_room(store: Store, name: str, path: Path) -> bool:
        if store is mirrors[1].store:
            raise InputError(f"{url}: no space left in {path.parent}")
        return get(store, name, path)

    monkeypatch.setattr(Store, "get", no_room)
    first, second = train_in_threads(url, add_step, mirrors)
    assert str(second).startswith(f"{url}: no space left in ")
    assert str(first) == f"worker 1 failed: {remote.with_urls(str(second))}"
    assert lease(url) is None


def test_lost_workers_leave_checkpoints_and_no_lease(url):
    """The next start does not have to wait until the lease expires."""

    def lose(mirror: Mirror, workers: Workers) -> None:
        add_step(mirror, workers)
        raise WorkerLostError(f"worker {workers.index} stops")

    assert lines(train_in_threads(url, lose)) == ["WorkerLostError: worker 0 stops", "WorkerLostError: worker 1 stops"]
    assert fetch_published(url)["checkpoints/step_00000012/state.json"] == "of worker 0" and lease(url) is None


def test_deleted_checkpoints_are_deleted_in_the_store(url):
    def withdraw(mirror: Mirror, workers: Workers) -> None:
        for name in NEWEST:
            (mirror.path / name).unlink()
        (mirror.path / "checkpoints" / "step_00000008").rmdir()
        raise InputError("diverged")

    assert lines(train_in_threads(url, withdraw)) == ["InputError: diverged"] * 2
    assert fetch_published(url) == {**SETTINGS, **OLDER, **OTHERS}


def test_exports_cannot_be_trained(url, tmp_path):
    (tmp_path / "store" / "run" / "1").mkdir()
    (tmp_path / "store" / "run" / "1" / "saved_model.pb").write_bytes(b"graph")
    message = f"{url} holds an exported model, which cannot be trained; use a different --model_dir"
    assert lines(train_in_threads(url, add_step)) == [
        f"InputError: {message}",
        f"InputError: worker 0 failed: {message}",
    ]


STEPS = 12
SIZES = {"max_steps": STEPS, "checkpoint_steps": 4, "validation_steps": 8, "keep_checkpoints": 2}
MODEL = {"dropout_rate": 0.0}  # replicas use different random numbers


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Data on the local disk and in a bucket."""
    folder = tmp_path_factory.mktemp("workers")
    data = tiny_training.make_data(folder)
    with s3_server():
        with mirror_on(folder / "writer", f"{BUCKET}/data") as mirror:
            shutil.copytree(data.directory, mirror.path, dirs_exist_ok=True)
            mirror.publish()
        yield data


def fetch_run(folder: Path, url: str) -> Path:
    """Fetches the published files to a separate disk."""
    with mirror_on(folder / "reader", url) as mirror:
        mirror.fetch()
    return mirror.path


@contextlib.contextmanager
def mirror_on(disk: Path, url: str) -> Iterator[Mirror]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T2T_KERAS_CACHE", str(disk))
        yield Mirror(url)


def train_together(
    folder: Path,
    model_dir: str | Path,
    data: Any,
    data_dir: str = f"{BUCKET}/data",
    **environments_by_worker: dict[str, str],
) -> tuple[list[int], list[str]]:
    """Trains with two workers on empty disks and with given environments; returns exit statuses and logs."""
    flags = tiny_training.launch_flags(model_dir, data, model=MODEL, **SIZES)
    flags += [f"--data_dir={data_dir}", f"--extension={Path(__file__).with_name('exiting_extension.py')}"]
    environments = worker_processes.tf_config(2)
    for index, environment in enumerate(environments):
        environment |= {
            "T2T_KERAS_CACHE": str(folder / f"disk_{index}"),
            **environments_by_worker.get(f"worker_{index}", {}),
        }
    quickly = (str(worker_processes.HERE / "launch_quickly.py"),)
    with worker_processes.running([flags] * 2, folder, environments, program=quickly) as workers:
        return workers.end(), [workers.output(index) for index in range(2)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, prepared):
    """A run of two workers without a shared disk."""
    folder, url = tmp_path_factory.mktemp("undisturbed"), f"{BUCKET}/undisturbed"
    statuses, outputs = train_together(folder, url, prepared)
    assert statuses == [0, 0], outputs
    return fetch_run(folder, url)


@pytest.mark.integration
def test_two_workers_without_a_shared_disk_equal_one_process(tmp_path, prepared, uninterrupted):
    assert tiny_training.train(tmp_path / "alone", prepared, model=MODEL, **SIZES).step == STEPS
    tiny_training.assert_same_numbers(uninterrupted, tmp_path / "alone")
    assert tiny_training.saved_steps(uninterrupted) == tiny_training.saved_steps(tmp_path / "alone")


@pytest.mark.integration
@pytest.mark.slow
def test_killed_workers_resume_on_empty_disks(tmp_path, prepared, uninterrupted):
    """The second worker is killed first, then the chief during an upload."""
    url = f"{BUCKET}/killed"
    statuses, outputs = train_together(tmp_path / "first", url, prepared, worker_1={"CALLS": "9"})
    assert statuses == [75, 9], outputs
    assert tiny_training.saved_steps(fetch_run(tmp_path / "first", url)) == [4]
    statuses, outputs = train_together(tmp_path / "second", url, prepared, worker_0={"UPLOADS": "7"})
    assert statuses == [9, 75] and "lease" not in outputs[0] + outputs[1], outputs  # the lease was released
    statuses, outputs = train_together(tmp_path / "third", url, prepared)
    assert statuses == [0, 0], outputs
    assert "its lease is taken over" in outputs[0] and "lease" not in outputs[1]
    killed = fetch_run(tmp_path / "third", url)
    tiny_training.assert_same_end(killed, uninterrupted, STEPS)
    assert tiny_training.records(killed, "valid") == tiny_training.records(uninterrupted, "valid")
    assert tiny_training.saved_steps(killed) == tiny_training.saved_steps(uninterrupted)
