"""Versions that come, go, are half-written or broken; a swap under load."""

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
from tests.serving.light_versions import Light, following, states, write
from tests.vocabularies import train_tokenizer
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "mine"


def test_the_latest_number_is_served(folder):
    for version in (3, 20, 100):
        write(folder, version)
    for other in ("v200", ".300.tmp", "12a", "²", "-5", str(1 << 63)):
        write(folder, other)
    (folder / "400").write_text("no directory")
    versions = following(folder)
    assert versions.served == 100 and states(versions) == {100: "AVAILABLE"}
    write(folder, "0101")
    versions.poll()
    assert versions.served == 101 and states(versions) == {101: "AVAILABLE", 100: "END"}
    assert [status.version for status in versions.statuses()] == [101, 100]


def test_waits_for_a_first_version(folder, caplog):
    versions = following(folder)
    versions.poll()
    assert versions.served is None and versions.statuses() == []
    assert caplog.text.count("no version") == 1
    with pytest.raises(ServingError, match=r"Latest\(mine\)") as caught, versions.lend():
        pass
    assert caught.value.code is Code.NOT_FOUND
    write(folder, 1)
    versions.poll()
    with versions.lend() as model:
        assert model.version == 1


def test_what_cannot_be_loaded_is_reported_and_tried_again_when_it_changes(folder, caplog):
    write(folder, 1)
    versions = following(folder)
    write(folder, 2, "half")
    versions.poll()
    versions.poll()
    assert versions.served == 1 and states(versions) == {1: "AVAILABLE", 2: "END"}
    (status, _) = versions.statuses()
    assert (status.error.code, status.error.message) == (Code.INTERNAL, "ValueError: not good")
    assert caplog.text.count("version 2 of mine cannot be loaded") == 1
    write(folder, 2, "half-and-more")
    versions.poll()
    assert caplog.text.count("cannot be loaded") == 2
    write(folder, 2)
    versions.poll()
    assert versions.served == 2 and states(versions) == {2: "AVAILABLE", 1: "END"}


def test_what_cannot_be_loaded_is_tried_again_some_times(folder, caplog):
    write(folder, 1, "bad")
    versions = following(folder, max_retries=2, retry_seconds=0)
    for tries in (2, 3, 3):
        versions.poll()
        assert caplog.text.count("version 1 of mine cannot be loaded") == tries
    assert caplog.text.count("tried again in 0 s") == 2 and caplog.text.count("when its files change") == 1
    # Changed files count anew.
    write(folder, 1, "as bad")
    for tries in (4, 5, 6, 6):
        versions.poll()
        assert caplog.text.count("cannot be loaded") == tries


def test_a_failure_that_passes_is_over_at_the_next_try(folder, monkeypatch):
    """As of a file system that was away: the files are the same."""
    write(folder, 1)
    away, clock = [True], [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def load(path, version):
        if away[0]:
            raise OSError("away")
        return Light(path, version)

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
def test_stopping_does_not_wait_for_a_version_that_is_being_loaded(folder):
    write(folder, 1)
    loading, goes_on = threading.Event(), threading.Event()

    def load(path, version):
        if version == 2:
            loading.set()
            assert goes_on.wait(300)
        return Light(path, version)

    versions = Versions(folder, "mine", load=load)
    versions.start(0.01)
    write(folder, 2)
    assert loading.wait(300)
    versions.stop()
    assert versions.thread.is_alive()
    goes_on.set()
    wait_until(lambda: not versions.thread.is_alive())


def test_an_older_version_serves_if_the_latest_is_broken_from_the_start(folder):
    write(folder, 1)
    write(folder, 2, "bad")
    (folder / "3").mkdir()
    assert following(folder).served == 1


def test_taking_a_version_away_goes_back(folder):
    write(folder, 1)
    write(folder, 2)
    versions = following(folder)
    shutil.rmtree(folder / "2")
    versions.poll()
    assert versions.served == 1
    versions.poll()
    assert states(versions) == {1: "AVAILABLE"}
    # The last one stays, whatever becomes of its files, and of the directory.
    shutil.rmtree(folder / "1")
    versions.poll()
    shutil.rmtree(folder)
    versions.poll()
    assert versions.served == 1 and states(versions) == {1: "AVAILABLE"}


def test_a_version_in_use_outlives_its_successor(folder):
    write(folder, 1)
    versions = following(folder)
    with versions.lend() as model:
        versions.keep(model)
        write(folder, 2)
        versions.poll()
        assert states(versions) == {2: "AVAILABLE", 1: "UNLOADING"}
        with pytest.raises(ServingError, match=r"Specific\(mine, 1\)"), versions.lend(1):
            pass
        with versions.lend(2) as later:
            assert later.version == 2
    assert states(versions)[1] == "UNLOADING"
    versions.release(model)
    assert states(versions)[1] == "END"
    gone = weakref.ref(model)
    del model
    assert gone() is None


def test_a_model_that_is_withdrawn_is_unloaded_after_its_last_request(folder):
    write(folder, 1)
    versions = following(folder)
    with versions.lend() as model:
        versions.withdraw()
        assert versions.served is None and states(versions) == {1: "UNLOADING"}
    assert states(versions) == {1: "END"} and model.version == 1
    versions.poll()
    assert versions.served is None


def test_a_failing_look_does_not_end_the_looking(folder, monkeypatch, caplog):
    write(folder, 1)
    versions = Versions(folder, "mine", load=Light)
    versions.start(0.01)
    failed = threading.Event()

    def fail(path):
        failed.set()
        raise RuntimeError("lost")

    try:
        monkeypatch.setattr(module, "_find_versions", fail)
        assert failed.wait(300)
        monkeypatch.undo()
        write(folder, 2)
        wait_until(lambda: versions.served == 2)
    finally:
        versions.stop()
    assert "lost" in caplog.text


def cut(path: pathlib.Path, size):
    os.truncate(path, size)


BREAK = {
    "no graph": lambda path: (path / "saved_model.pb").unlink(),
    "empty graph": lambda path: cut(path / "saved_model.pb", 0),
    "half a graph": lambda path: cut(path / "saved_model.pb", 2000),
    "no graph at all": lambda path: (path / "saved_model.pb").write_bytes(random.Random(1).randbytes(2000)),
    "no variables": lambda path: shutil.rmtree(path / "variables"),
    "no index": lambda path: (path / "variables" / "variables.index").unlink(),
    "no data": lambda path: (path / "variables" / "variables.data-00000-of-00001").unlink(),
    "half the data": lambda path: cut(path / "variables" / "variables.data-00000-of-00001", 2),
    "damaged data": lambda path: (path / "variables" / "variables.data-00000-of-00001").write_bytes(
        bytes(byte ^ 255 for byte in (path / "variables" / "variables.data-00000-of-00001").read_bytes())
    ),
    "damaged warm-up": lambda path: cut(path / "assets.extra" / "tf_serving_warmup_requests", 40),
}


@pytest.mark.quick("no data", "damaged data", "damaged warm-up")
@pytest.mark.parametrize("how", BREAK)
def test_a_broken_saved_model_is_never_served(versions_1_and_2, export_dir, how):
    core = Core(ServingOptions(str(export_dir)))
    core.models.first.poll()
    shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
    BREAK[how](export_dir / "2")
    core.models.first.poll()
    assert core.models.first.served == 1
    response = core.status("toy", 2)
    (status,) = response.model_version_status
    assert status.state == 50 and status.status.error_code != 0 and status.status.error_message
    # Who asks for it needs no key.
    assert not re.search(r"(^|[^\w])/\w", status.status.error_message), status.status.error_message
    # Whole again, it is served.
    shutil.rmtree(export_dir / "2")
    shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
    core.models.first.poll()
    assert core.models.first.served == 2
    assert core.close(20)


def test_a_version_whose_warm_up_fails_is_not_served(export_dir, tmp_path):
    from tests.serving import toy

    toy.save(export_dir, 2, ["good", "bad"])
    core = Core(ServingOptions(str(export_dir)))
    core.models.first.poll()
    assert core.models.first.served == 1
    (status,) = core.status("toy", 2).model_version_status
    assert "no such word" in status.status.error_message
    assert core.close(20)


def test_a_vocabulary_is_freed_with_its_model_and_with_no_other(tmp_path):
    import tensorflow as tf
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as operations

    module = tf.Module()
    vocabulary = train_tokenizer(tiny.SENTENCES, 350, tmp_path / "vocab.model")
    module.tokenizer = vocabulary.graph_tokenizer()
    lines = tf.TensorSpec([None], tf.string, name="text")
    cut = tf.function(lambda text: {"length": module.tokenizer.tokenize(text).row_lengths()}, input_signature=[lines])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=cut)
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
def test_a_model_is_freed_with_the_threads_that_warmed_it_up(export_dir):
    model, before = Model(export_dir / "1", 1), set(threading.enumerate())
    assert model.warm_up() == 2
    warm = set(threading.enumerate()) - before
    gone = weakref.ref(model._loaded.number)
    assert warm and all(thread.is_alive() for thread in warm)  # what it made lies in their heaps
    del model
    gc.collect()
    assert gone() is None
    wait_until(lambda: not any(thread.is_alive() for thread in warm))


@pytest.mark.integration
def test_a_swap_under_load_drops_nothing(versions_1_and_2, export_dir, caplog):
    """Every answer is of one version, first of the old, then of the new, and none is missing."""
    caplog.set_level(logging.INFO, "t2t_keras.serving")
    options = ServingOptions(str(export_dir), rest_port=0, grpc_port=0, num_streams=2, poll_seconds=0.05)
    server = Server(options)
    server.start()
    done, answers = threading.Event(), [[] for _ in range(8)]

    def client(own):
        with httpx.Client(timeout=300) as http:
            while not done.is_set():
                body = {"signature_name": "single", "inputs": ["a", "b"]}
                answer = http.post(f"http://{server.rest_address}/v1/models/toy:predict", json=body)
                own.append((answer.status_code, answer.json().get("outputs")))

    threads = [threading.Thread(target=client, args=(own,)) for own in answers]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(own) > 10 for own in answers))
    shutil.copytree(versions_1_and_2 / "2", export_dir / ".2.tmp")
    (export_dir / ".2.tmp").rename(export_dir / "2")
    wait_until(lambda: server.core.models.first.served == 2)
    before = [len(own) for own in answers]
    wait_until(lambda: all(len(own) > size + 10 for own, size in zip(answers, before, strict=True)))
    done.set()
    for thread in threads:
        thread.join(300)
    assert server.stop()
    for own in answers:
        found = [version for _, version in own]
        assert {status for status, _ in own} == {200}
        assert found == sorted(found) and found[0] == [1, 1] and found[-1] == [2, 2]
    assert "version 1 of toy is unloaded" in caplog.text
