"""The health service of gRPC: a server is ready when it has a version that passes its warm-up."""

import dataclasses
import math
import shutil

import grpc
import pytest
import tensorflow as tf
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from t2t_keras.serving.grpc_health import Health
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import toy
from tests.waiting import wait_until

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


def name(service):
    return StringValue(value=service).SerializeToString()


def health(message):
    return Health(Int32Value.FromString(message).value)


def save_untranslatable(path, *, fails):
    """Writes a SavedModel without warm-up requests whose translations fail."""

    class Untranslatable(tf.Module):
        @tf.function(input_signature=[toy.TEXT])
        def translate(self, text):
            with tf.control_dependencies([tf.debugging.Assert(not fails, ["the weights are lost"])]):
                return {"translation": tf.identity(text), "score": tf.fill(tf.shape(text), math.nan)}

    model = Untranslatable()
    temporary = path.with_name("temporary")
    path.parent.mkdir(exist_ok=True)
    tf.saved_model.save(model, str(temporary), signatures={"serving_default": model.translate})
    temporary.rename(path)


@pytest.mark.parametrize("service", ["", "toy", "tensorflow.serving.PredictionService"])
def test_servers_with_a_version_are_ready(server, service):
    with grpc.insecure_channel(server.grpc_address) as channel:
        assert health(channel.unary_unary(CHECK)(name(service), timeout=300)) is Health.SERVING


def test_unknown_services_and_invalid_messages(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(CHECK)(name("other"), timeout=300)
        assert (caught.value.code().name, "'other'" in caught.value.details()) == ("NOT_FOUND", True)
        watchers = channel.unary_stream(WATCH)(name("other"), timeout=300)
        assert health(next(watchers)) is Health.SERVICE_UNKNOWN
        watchers.cancel()
        for method in (channel.unary_unary(CHECK), lambda *a, **k: next(channel.unary_stream(WATCH)(*a, **k))):
            with pytest.raises(grpc.RpcError) as caught:
                method(b"\xff", timeout=300)
            assert caught.value.code().name == "INVALID_ARGUMENT"


def test_watching_clients_are_limited(server, monkeypatch):
    monkeypatch.setattr(server.core, "options", dataclasses.replace(server.core.options, max_connections=8))
    with grpc.insecure_channel(server.grpc_address) as channel:
        watchers = [channel.unary_stream(WATCH)(name(""), timeout=300) for _ in range(2)]
        assert [health(next(watch)) for watch in watchers] == [Health.SERVING] * 2
        with pytest.raises(grpc.RpcError) as caught:
            next(channel.unary_stream(WATCH)(name(""), timeout=300))
        assert caught.value.code().name == "RESOURCE_EXHAUSTED" and "2 clients are watching" in caught.value.details()
        assert health(channel.unary_unary(CHECK)(name(""), timeout=300)) is Health.SERVING
        watchers[0].cancel()

        def may_watch():
            watcher = channel.unary_stream(WATCH)(name(""), timeout=300)
            try:
                return health(next(watcher)) is Health.SERVING
            except grpc.RpcError:
                return False
            finally:
                watcher.cancel()

        wait_until(may_watch)
        watchers[1].cancel()


@pytest.mark.integration
@pytest.mark.parametrize(("fails", "words"), [(True, "the weights are lost"), (False, "'score'")])
def test_watchers_learn_when_a_working_version_replaces_a_broken_one(versions_1_and_2, tmp_path, fails, words):
    folder = tmp_path / "toy"
    folder.mkdir()
    save_untranslatable(folder / "1", fails=fails)
    extra = folder / "1" / "assets.extra"
    extra.mkdir(exist_ok=True)
    (extra / "config.json").write_text("{}", encoding="utf-8")  # exports of other projects may take other inputs
    server = Server(ServingOptions(str(folder), rest_port=0, grpc_port=0, poll_seconds=0.05))
    server.start()
    with grpc.insecure_channel(server.grpc_address) as channel:
        assert health(channel.unary_unary(CHECK)(name(""), timeout=300)) is Health.NOT_SERVING
        (status,) = server.core.status("toy", None).model_version_status
        assert words in status.status.error_message
        watchers = channel.unary_stream(WATCH)(name("toy"), timeout=300)
        assert health(next(watchers)) is Health.NOT_SERVING
        shutil.copytree(versions_1_and_2 / "2", tmp_path / "2")
        (tmp_path / "2").rename(folder / "2")
        assert health(next(watchers)) is Health.SERVING
        # A stopping server notifies the watching clients, and does not wait for them.
        assert server.stop()
        assert [health(message) for message in watchers] == [Health.NOT_SERVING]
