"""The cache of answers: hits, eviction, uncached outputs, and a server with a cache."""

import json
import shutil
import tracemalloc
import weakref
from concurrent.futures import CancelledError, Future

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.serving.answer_cache import AnswerCache, repeatable
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import ServingError
from t2t_keras.serving.served_models import Model
from t2t_keras.serving.server import Server
from tests.serving import toy
from tests.serving.doubling import Doubler, occupy_stream, wait_for
from tests.serving.rest_calls import metric
from tests.waiting import wait_until


class Repeatable(Doubler):
    """A doubler whose outputs depend only on its inputs."""

    repeatable = True

    def __init__(self, number=0, **settings):
        super().__init__(**settings)
        self.number = number


@pytest.fixture
def submit_to(make_batcher):
    """Submits rows to a cache; a batcher runs the rows that are not cached."""
    batcher = make_batcher(size=100)

    def submit_to(cache, function, *rows):
        def run(inputs, number):
            return batcher.submit(function, inputs, np.ones(number, np.int64), 30.0)

        return cache.submit(function, {"x": np.array(rows)}, len(rows), run)

    submit_to.batcher = batcher
    return submit_to


def test_only_missing_rows_run_and_the_order_stays(submit_to):
    counted, function = [], Repeatable()
    cache = AnswerCache(10**6, lambda *rows: counted.append(rows))
    assert wait_for(submit_to(cache, function, 1, 2)) == [2, 4]
    assert wait_for(submit_to(cache, function, 3, 2, 4, 1, 3)) == [6, 4, 8, 2, 6]
    assert wait_for(submit_to(cache, function, 4, 3)) == [8, 6]
    assert function.batches == [[1, 2], [3, 4, 3]]
    assert counted == [(0, 2), (2, 3), (2, 0)]
    assert cache.num_bytes == sum(size for _, size in cache._entries.values()), "a repeated row counts once"


def test_the_least_recently_used_rows_are_evicted(submit_to):
    function = Repeatable()
    cache = AnswerCache(10**6)
    wait_for(submit_to(cache, function, 0))
    cache = AnswerCache(3 * cache.num_bytes)
    for row in (1, 2, 3, 1, 4):
        wait_for(submit_to(cache, function, row))
    assert function.batches == [[0], [1], [2], [3], [4]]
    wait_for(submit_to(cache, function, 1, 3, 4))
    wait_for(submit_to(cache, function, 2))
    assert function.batches[5:] == [[2]]


def test_answers_larger_than_the_limit_are_not_cached(submit_to):
    function, cache = Repeatable(), AnswerCache(100)
    for _ in range(2):
        assert wait_for(submit_to(cache, function, 1)) == [2]
    assert function.batches == [[1], [1]] and cache.num_bytes == 0


def test_calls_that_cannot_be_merged_are_cached_whole(submit_to):
    counted, function = [], Repeatable(mergeable=False)
    cache = AnswerCache(10**6, lambda *rows: counted.append(rows))
    for rows in [(1, 2), (1,), (2, 1), (1, 2)]:
        assert wait_for(submit_to(cache, function, *rows)) == [2 * row for row in rows]
    assert function.batches == [[1, 2], [1], [2, 1]]
    assert counted == [(0, 2), (0, 1), (0, 2), (2, 0)]


def test_calls_that_are_not_repeatable_are_not_cached(submit_to):
    function, cache = Repeatable(), AnswerCache(10**6)
    function.repeatable = False
    for _ in range(2):
        assert wait_for(submit_to(cache, function, 1)) == [2]
    assert function.batches == [[1], [1]] and cache.num_bytes == 0
    future = Future()
    assert cache.submit(Repeatable(), {}, 1, lambda inputs, rows: future) is future, "a call without inputs"


def test_signatures_have_separate_answers(submit_to):
    cache, functions = AnswerCache(10**6), [Repeatable(1), Repeatable(2)]
    for function in functions * 2:
        assert wait_for(submit_to(cache, function, 5)) == [10]
    num_bytes = cache.num_bytes
    cache.forget(functions[:1])
    assert cache.num_bytes == num_bytes / 2
    for function in functions:
        wait_for(submit_to(cache, function, 5))
    assert [function.batches for function in functions] == [[[5], [5]], [[5]]]


def test_stored_outputs_of_one_row_are_found(submit_to):
    counted, first, second = [], Repeatable(1), Repeatable(2)
    cache = AnswerCache(10**6, lambda *rows: counted.append(rows))
    inputs = {"x": np.array([5])}
    assert cache.find([first, second], inputs) is None
    cache.store(second, inputs, {"y": np.array([10])})
    assert cache.find([first, second], inputs) == {"y": [10]}
    assert wait_for(submit_to(cache, second, 5)) == [10] and not second.batches
    assert cache.find([second], {"x": np.array([6])}) is None
    assert counted == [(0, 1), (1, 0), (1, 0), (0, 1)]
    assert len(cache._entries) == 1


def test_cached_rows_do_not_reference_their_batch(submit_to):
    cache = AnswerCache(10**6)
    batch = submit_to(cache, Repeatable(), *range(20)).result(300)["y"]
    assert len(cache._entries) == 20
    assert not any(np.shares_memory(outputs["y"], batch) for outputs, _ in cache._entries.values())


def test_uncached_answers_are_freed_with_their_future(submit_to, without_gc):
    future = submit_to(AnswerCache(1), Repeatable(), 1)
    reference = weakref.ref(future.result(300)["y"])
    del future
    wait_until(lambda: reference() is None)


def test_failures_are_raised_and_not_cached(submit_to):
    function, cache = Repeatable(bad=2), AnswerCache(10**6)
    assert wait_for(submit_to(cache, function, 1)) == [2]
    for _ in range(2):
        with pytest.raises(ServingError, match="no 2"):
            wait_for(submit_to(cache, function, 1, 2))
    assert function.batches == [[1], [2], [2]]


def test_outputs_without_rows_are_not_cached(submit_to):
    class Odd(Repeatable):
        def run(self, inputs):
            return {name: array[:1] for name, array in super().run(inputs).items()}

    function, cache = Odd(), AnswerCache(10**6)
    assert wait_for(submit_to(cache, function, 7, 8)) == [14]
    assert cache.num_bytes == 0
    assert wait_for(submit_to(cache, function, 7)) == [14]
    with pytest.raises(ServingError, match="for 2 rows"):
        wait_for(submit_to(cache, function, 7, 8, 9))


def test_cancelled_calls_that_have_not_started_never_run(submit_to):
    function, cache = Repeatable(), AnswerCache(10**6)
    wait_for(submit_to(cache, function, 1))
    first = occupy_stream(submit_to.batcher, function)
    waiting = [submit_to(cache, function, 1, 2), submit_to(cache, function, 3)]
    for future in waiting:
        assert future.cancel()
    function.gate.set()
    assert wait_for(first) == [0]
    wait_until(lambda: submit_to.batcher.waiting == 0)
    for future in waiting:
        with pytest.raises(CancelledError):
            wait_for(future)
    assert wait_for(submit_to(cache, function, 4)) == [8]
    assert function.batches == [[1], [0], [4]]


def test_a_closed_cache_stores_nothing(submit_to):
    function, cache = Repeatable(), AnswerCache(10**6)
    wait_for(submit_to(cache, function, 1))
    cache.close()
    for _ in range(2):
        assert wait_for(submit_to(cache, function, 1)) == [2]
    assert function.batches == [[1], [1], [1]] and cache.num_bytes == 0


def texts_backwards(inputs, rows):
    """A function that responds immediately with texts and numbers."""
    future = Future()
    texts = [text[::-1] + b"." for text in inputs["text"].tolist()]
    future.set_result({"translation": np.array(texts, object), "score": np.ones(rows, np.float32)})
    return future


@pytest.mark.parametrize("length", [1, 100])
def test_counted_memory_bounds_actual_memory(length):
    cache = AnswerCache(10**9)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for request in range(100):
            texts = np.array([b"%d %d " % (request, row) + b"x" * length for row in range(20)], object)
            cache.submit(Repeatable(), {"text": texts}, 20, texts_backwards)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * cache.num_bytes < grown <= cache.num_bytes


def test_cache_keys_depend_on_values_and_positions():
    function, cache, submitted = Repeatable(mergeable=False), AnswerCache(10**6), []

    def run(inputs, rows):
        submitted.append(inputs)
        return texts_backwards({"text": np.array([b"a"], object)}, rows)

    inputs = [
        {"ids": np.array([[1, 2]], np.int32), "length": np.array([2], np.int32)},
        {"ids": np.array([[1], [2]], np.int32), "length": np.array([2], np.int32)},
        {"ids": np.array([[2, 1]], np.int32), "length": np.array([2], np.int32)},
        {"ids": np.array([[1, 2]], np.int32), "length": np.array([1], np.int32)},
        {"ids": np.array([b"ab", b"c"], object), "length": np.array([1], np.int32)},
        {"ids": np.array([b"a", b"bc"], object), "length": np.array([1], np.int32)},
    ]
    for call in [*inputs, *inputs]:
        cache.submit(function, call, 1, run)
    assert len(submitted) == len(inputs)


class MixedFunctions(tf.Module):
    """Functions that depend only on their inputs, and functions that do not."""

    def __init__(self):
        super().__init__()
        self.count = tf.Variable(0)

    @tf.function(input_signature=[toy.TEXT])
    def plain(self, text):
        return {"shown": tf.map_fn(tf.strings.upper, text)}

    @tf.function(input_signature=[toy.TEXT])
    def drawn(self, text):
        inner = tf.function(lambda: tf.random.uniform(tf.shape(text)))
        return {"drawn": tf.cond(tf.size(text) > 1, inner, lambda: tf.zeros(tf.shape(text)))}

    @tf.function(input_signature=[toy.TEXT])
    def counted(self, text):
        return {"counted": tf.fill(tf.shape(text), self.count.assign_add(1))}


def test_stateful_and_random_signatures_are_not_repeatable(tmp_path):
    functions = MixedFunctions()
    names = ("plain", "drawn", "counted")
    tf.saved_model.save(functions, str(tmp_path), signatures={name: getattr(functions, name) for name in names})
    (graph,) = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes()).meta_graphs
    assert repeatable(graph) & set(names) == {"plain"}
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            node.op = node.op.replace("StringUpper", "OfALibrary")
    assert not repeatable(graph) & set(names), "an operation that TensorFlow does not know may have side effects"


def test_repeatable_signatures_of_a_model(export_dir):
    model = Model(export_dir / "1", 1)
    others = {name for name, signature in model.signatures.items() if not signature.repeatable}
    assert others == {"gate", "sample"}
    numbers = {signature.number for signature in model.signatures.values()}
    assert len(numbers) == len(model.signatures)
    assert not numbers & {signature.number for signature in Model(export_dir / "1", 1).signatures.values()}
    (export_dir / "1" / "assets.extra" / "config.json").write_text(json.dumps({"decode": {"sampling": True}}))
    assert not any(signature.repeatable for signature in Model(export_dir / "1", 1).signatures.values())


def test_both_interfaces_share_the_cache_until_the_version_is_unloaded(versions_1_and_2, export_dir):
    server = Server(ServingOptions(str(export_dir), rest_port=0, grpc_port=0, poll_seconds=0.05, cache_bytes=10**6))
    server.start()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["ab", "cd"]))
    try:
        with (
            grpc.insecure_channel(server.grpc_address) as channel,
            httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client,
        ):

            def rest(*texts, signature="serving_default"):
                body = {"instances": texts, "signature_name": signature}
                return client.post("/v1/models/toy:predict", json=body).json()["predictions"]

            def counts():
                values = metric(client, "t2t_serving_")
                names = ("cache_hits_total", "cache_misses_total", "sentences_total")
                return tuple(values[f"t2t_serving_{name}"] for name in names)

            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            assert [row["translation"] for row in rest("ab")] == ["BA"]
            assert counts() == (0, 1, 1)
            outputs = stub.Predict(request, timeout=300).outputs
            assert list(outputs["translation"].string_val) == [b"BA", b"DC"]
            assert counts() == (1, 2, 2)
            assert rest("cd", "x", "ab") == [
                {"translation": "DC", "score": -0.2},
                {"translation": "X", "score": -0.1},
                {"translation": "BA", "score": -0.2},
            ]
            assert counts() == (3, 3, 3)
            assert stub.Predict(request, timeout=300).outputs == outputs
            assert counts() == (5, 3, 3)
            assert rest("ab", signature="single") == rest("ab", signature="single") == [1]
            assert counts() == (6, 4, 4)
            assert 0 < metric(client, "t2t_serving_cache_bytes")["t2t_serving_cache_bytes"] < 10**6
            shutil.copytree(versions_1_and_2 / "2", export_dir / "2.tmp")
            (export_dir / "2.tmp").rename(export_dir / "2")
            wait_until(lambda: metric(client, "t2t_serving_cache_bytes") == {"t2t_serving_cache_bytes": 0})
            assert rest("ab", signature="single") == [2]
    finally:
        assert server.stop()


def test_cache_keys_ignore_the_order_of_inputs():
    cache, calls = AnswerCache(10**6), []

    def run(inputs, rows):
        calls.append(rows)
        future = Future()
        future.set_result({"y": np.ones(rows)})
        return future

    inputs = {"ids": np.ones([1, 2], np.int32), "length": np.ones([1], np.int32)}
    function = Repeatable()
    for call in (inputs, dict(reversed(inputs.items()))):
        cache.submit(function, call, 1, run)
    assert calls == [1]
