"""Versions that are added, removed, incomplete or damaged, and replacing a version under load."""

import gc
import logging
import os
import pathlib
import random
import re
import shutil
import threading
import weakref

import httpx
import numpy as np
import pytest

from t2t_keras.serving import versions as module
from t2t_keras.serving.core import Core
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Model
from t2t_keras.serving.server import Server
from t2t_keras.serving.versions import Versions
from tests.inference import tiny
from tests.serving.light_versions import FakeModel, open_versions, states, write_version
from tests.vocabularies import train_tokenizer
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "mine"


def test_latest_version_is_served(folder):
    for version in (3, 20, 100):
        write_version(folder, version)
    for other in ("v200", ".300.tmp", "12a", "²", "-5", str(1 << 63)):
        write_version(folder, other)
    (folder / "400").write_text("no directory")
    versions = open_versions(folder)
    assert versions.served == 100 and states(versions) == {100: "AVAILABLE"}
    write_version(folder, "0101")
    versions.poll()
    assert versions.served == 101 and states(versions) == {101: "AVAILABLE", 100: "END"}
    assert [status.version for status in versions.statuses()] == [101, 100]


def test_server_waits_for_a_first_version(folder, caplog):
    versions = open_versions(folder)
    versions.poll()
    assert versions.served is None and versions.statuses() == []
    assert caplog.text.count("no version") == 1
    with pytest.raises(ServingError, match=r"Latest\(mine\)") as caught, versions.lend():
        pass
    assert caught.value.code is Code.NOT_FOUND
    write_version(folder, 1)
    versions.poll()
    with versions.lend() as model:
        assert model.version == 1


def test_failed_versions_are_retried_when_their_files_change(folder, caplog):
    write_version(folder, 1)
    versions = open_versions(folder)
    write_version(folder, 2, "half")
    versions.poll()
    versions.poll()
    assert versions.served == 1 and states(versions) == {1: "AVAILABLE", 2: "END"}
    (status, _) = versions.statuses()
    assert (status.error.code, status.error.message) == (Code.INTERNAL, "ValueError: not good")
    assert caplog.text.count("version 2 of mine cannot be loaded") == 1
    write_version(folder, 2, "half-and-more")
    versions.poll()
    assert caplog.text.count("cannot be loaded") == 2
    write_version(folder, 2)
    versions.poll()
    assert versions.served == 2 and states(versions) == {2: "AVAILABLE", 1: "END"}


def test_failed_versions_are_retried_a_few_times(folder, caplog):
    write_version(folder, 1, "bad")
    versions = open_versions(folder, max_retries=2, retry_seconds=0)
    for tries in (2, 3, 3):
        versions.poll()
        assert caplog.text.count("version 1 of mine cannot be loaded") == tries
    assert caplog.text.count("next attempt in 0 s") == 2 and caplog.text.count("when its files change") == 1
    # Changed files reset the number of attempts.
    write_version(folder, 1, "as bad")
    for tries in (4, 5, 6, 6):
        versions.poll()
        assert caplog.text.count("cannot be loaded") == tries


def test_temporary_failures_end_with_the_next_attempt(folder, monkeypatch):
    """A file system may be unavailable for a while; its files do not change."""
    write_version(folder, 1)
    away, clock = [True], [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def load(path, version):
        if away[0]:
            raise OSError("away")
        return FakeModel(path, version)

    versions = Versions(folder, "mine", max_retries=1, retry_seconds=60, load=load)
    versions.poll()
    away[0] = False
    clock[0] += 59
    versions.poll()
    assert versions.served is None
    clock[0] += 1
    versions.poll()
    assert versions.served == 1 and states(versions) == {1: "AVAILABLE"}


@pytest.mark.integration
def test_stopping_does_not_wait_for_loading(folder):
    write_version(folder, 1)
    loading, resume = threading.Event(), threading.Event()

    def load(path, version):
        if version == 2:
            loading.set()
            assert resume.wait(300)
        return FakeModel(path, version)

    versions = Versions(folder, "mine", load=load)
    versions.start(0.01)
    write_version(folder, 2)
    assert loading.wait(300)
    versions.stop()
    assert versions.thread.is_alive()
    resume.set()
    wait_until(lambda: not versions.thread.is_alive())


def test_older_version_is_served_if_the_latest_is_damaged(folder):
    write_version(folder, 1)
    write_version(folder, 2, "bad")
    (folder / "3").mkdir()
    assert open_versions(folder).served == 1


def test_removing_the_latest_version_restores_the_previous_one(folder):
    write_version(folder, 1)
    write_version(folder, 2)
    versions = open_versions(folder)
    shutil.rmtree(folder / "2")
    versions.poll()
    assert versions.served == 1
    versions.poll()
    assert states(versions) == {1: "AVAILABLE"}
    # The last version stays, even without its files and its directory.
    shutil.rmtree(folder / "1")
    versions.poll()
    shutil.rmtree(folder)
    versions.poll()
    assert versions.served == 1 and states(versions) == {1: "AVAILABLE"}


def test_versions_in_use_stay_loaded(folder):
    write_version(folder, 1)
    versions = open_versions(folder)
    with versions.lend() as model:
        versions.keep(model)
        write_version(folder, 2)
        versions.poll()
        assert states(versions) == {2: "AVAILABLE", 1: "UNLOADING"}
        with pytest.raises(ServingError, match=r"Specific\(mine, 1\)"), versions.lend(1):
            pass
        with versions.lend(2) as later:
            assert later.version == 2
    assert states(versions)[1] == "UNLOADING"
    versions.release(model)
    assert states(versions)[1] == "END"
    reference = weakref.ref(model)
    del model
    assert reference() is None


def test_withdrawn_models_are_unloaded_after_their_last_request(folder):
    write_version(folder, 1)
    versions = open_versions(folder)
    with versions.lend() as model:
        versions.withdraw()
        assert versions.served is None and states(versions) == {1: "UNLOADING"}
    assert states(versions) == {1: "END"} and model.version == 1
    versions.poll()
    assert versions.served is None


def test_polling_continues_after_an_error(folder, monkeypatch, caplog):
    write_version(folder, 1)
    versions = Versions(folder, "mine", load=FakeModel)
    versions.start(0.01)
    failed = threading.Event()

    def fail(path):
        failed.set()
        raise RuntimeError("lost")

    try:
        monkeypatch.setattr(module, "_find_versions", fail)
        assert failed.wait(300)
        monkeypatch.undo()
        write_version(folder, 2)
        wait_until(lambda: versions.served == 2)
    finally:
        versions.stop()
    assert "lost" in caplog.text


def truncate(path: pathlib.Path, size):
    os.truncate(path, size)


DAMAGE = {
    "no graph": lambda path: (path / "saved_model.pb").unlink(),
    "empty graph": lambda path: truncate(path / "saved_model.pb", 0),
    "half a graph": lambda path: truncate(path / "saved_model.pb", 2000),
    "no graph at all": lambda path: (path / "saved_model.pb").write_bytes(random.Random(1).randbytes(2000)),
    "no variables": lambda path: shutil.rmtree(path / "variables"),
    "no index": lambda path: (path / "variables" / "variables.index").unlink(),
    "no data": lambda path: (path / "variables" / "variables.data-00000-of-00001").unlink(),
    "half the data": lambda path: truncate(path / "variables" / "variables.data-00000-of-00001", 2),
    "damaged data": lambda path: (path / "variables" / "variables.data-00000-of-00001").write_bytes(
        bytes(byte ^ 255 for byte in (path / "variables" / "variables.data-00000-of-00001").read_bytes())
    ),
    "damaged warm-up": lambda path: truncate(path / "assets.extra" / "tf_serving_warmup_requests", 40),
}


@pytest.mark.quick("no data", "damaged data", "damaged warm-up")
@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_saved_models_are_never_served(versions_1_and_2, export_dir, how):
    core = Core(ServingOptions(str(export_dir)))
    core.models.first.poll()
    shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
    DAMAGE[how](export_dir / "2")
    core.models.first.poll()
    assert core.models.first.served == 1
    status_response = core.status("toy", 2)
    (status,) = status_response.model_version_status
    assert status.state == 50 and status.status.error_code != 0 and status.status.error_message
    # The status needs no API key, so it must not contain paths.
    assert not re.search(r"(^|[^\w])/\w", status.status.error_message), status.status.error_message
    # A repaired version is served.
    shutil.rmtree(export_dir / "2")
    shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
    core.models.first.poll()
    assert core.models.first.served == 2
    assert core.close(20)


def test_versions_with_a_failing_warm_up_are_not_served(export_dir, tmp_path):
    from tests.serving import toy

    toy.save(export_dir, 2, ["good", "bad"])
    core = Core(ServingOptions(str(export_dir)))
    core.models.first.poll()
    assert core.models.first.served == 1
    (status,) = core.status("toy", 2).model_version_status
    assert "no such word" in status.status.error_message
    assert core.close(20)


def test_vocabularies_are_freed_with_their_model(tmp_path):
    import tensorflow as tf
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as operations

    module = tf.Module()
    vocabulary = train_tokenizer(tiny.SENTENCES, 350, tmp_path / "vocab.model")
    module.tokenizer = vocabulary.graph_tokenizer()
    lines = tf.TensorSpec([None], tf.string, name="text")
    count_tokens = tf.function(
        lambda text: {"length": module.tokenizer.tokenize(text).row_lengths()}, input_signature=[lines]
    )
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=count_tokens)
    stays, goes = (Model(tmp_path / "1", 1) for _ in range(2))
    handles = [model._loaded.tokenizer._model_resource.resource_handle for model in (stays, goes)]
    assert [int(operations.sentencepiece_vocab_size_op(each)) for each in handles] == [vocabulary.vocab_size] * 2
    del goes
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        operations.sentencepiece_vocab_size_op(handles[1])
    lengths = stays.signature("").run({"text": np.array([tiny.SENTENCES[0]], object)})["length"]
    assert lengths == [len(vocabulary.encode(tiny.SENTENCES[0]))]


@pytest.mark.integration
def test_models_are_freed_with_their_warm_up_threads(export_dir):
    model, before = Model(export_dir / "1", 1), set(threading.enumerate())
    assert model.warm_up() == 2
    warm = set(threading.enumerate()) - before
    reference = weakref.ref(model._loaded.number)
    assert warm and all(thread.is_alive() for thread in warm)  # their heaps hold what the warm-up allocated
    del model
    gc.collect()
    assert reference() is None
    wait_until(lambda: not any(thread.is_alive() for thread in warm))


@pytest.mark.integration
def test_replacing_a_version_under_load_loses_no_requests(versions_1_and_2, export_dir, caplog):
    """Each response comes from one version, the old and then the new one, and no response is missing."""
    caplog.set_level(logging.INFO, "t2t_keras.serving")
    options = ServingOptions(str(export_dir), rest_port=0, grpc_port=0, num_streams=2, poll_seconds=0.05)
    server = Server(options)
    server.start()
    done, responses = threading.Event(), [[] for _ in range(8)]

    def client(results):
        with httpx.Client(timeout=300) as http:
            while not done.is_set():
                body = {"signature_name": "single", "inputs": ["a", "b"]}
                response = http.post(f"http://{server.rest_address}/v1/models/toy:predict", json=body)
                results.append((response.status_code, response.json().get("outputs")))

    threads = [threading.Thread(target=client, args=(results,)) for results in responses]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(results) > 10 for results in responses))
    shutil.copytree(versions_1_and_2 / "2", export_dir / ".2.tmp")
    (export_dir / ".2.tmp").rename(export_dir / "2")
    wait_until(lambda: server.core.models.first.served == 2)
    before = [len(results) for results in responses]
    wait_until(lambda: all(len(results) > size + 10 for results, size in zip(responses, before, strict=True)))
    done.set()
    for thread in threads:
        thread.join(300)
    assert server.stop()
    for results in responses:
        versions_seen = [version for _, version in results]
        assert {status for status, _ in results} == {200}
        assert versions_seen == sorted(versions_seen) and versions_seen[0] == [1, 1] and versions_seen[-1] == [2, 2]
    assert "version 1 of toy is unloaded" in caplog.text
