"""The order of batches, stopping batches, and rejecting requests before they wait."""

import threading

import pytest
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from tests.serving.doubling import Doubler, occupy_stream, submit, wait_for
from tests.serving.test_cancelling import count_to


class Endless(Doubler):
    """A TensorFlow function that runs until it is stopped, or returns immediately for 0."""

    def __init__(self, mergeable=True):
        super().__init__(mergeable)
        self.stopped = threading.Event()
        self.function = count_to.get_concrete_function()

    def run(self, inputs):
        self.batches.append(inputs["x"].tolist())
        self.entered.set()
        try:
            self.function(tf.constant(10**15 * int(inputs["x"].max()), tf.int64))
        except tf.errors.CancelledError:
            self.stopped.set()
            raise
        return {"y": inputs["x"] * 2}


@pytest.mark.parametrize("mergeable", [True, False])
def test_cancelling_a_request_stops_its_batch(make_batcher, mergeable):
    function = Endless(mergeable)
    batcher = make_batcher()
    future = submit(batcher, function, 1, 2)
    assert function.entered.wait(300)
    assert future.cancel() and function.stopped.wait(300)
    assert wait_for(submit(batcher, function, 0)) == [0]


def test_a_batch_stops_only_when_all_its_requests_are_cancelled(make_batcher):
    function = Endless()
    batcher = make_batcher(size=4)
    gate = Doubler()
    occupy_stream(batcher, gate)
    futures = [submit(batcher, function, number) for number in (1, 2, 3)]
    gate.gate.set()
    assert function.entered.wait(300) and function.batches == [[1, 2, 3]]
    assert futures[0].cancel() and futures[1].cancel()
    assert not function.stopped.is_set()
    assert futures[2].cancel() and function.stopped.wait(300)
    assert function.batches == [[1, 2, 3]]


def test_closing_stops_running_batches(make_batcher):
    function = Endless()
    batcher = make_batcher()
    future = submit(batcher, function, 1)
    assert function.entered.wait(300)
    assert not batcher.close(0)
    with pytest.raises(ServingError, match="stopping"):
        future.result(300)
    assert function.stopped.wait(300)


def test_calls_that_cannot_be_split_are_limited_to_four_batches(make_batcher):
    """Two requests of 24 rows of 1,000 ids occupied both streams for a minute."""
    function = Doubler(mergeable=False)
    batcher = make_batcher(cost=250)
    assert wait_for(submit(batcher, function, 5000)) == [10000]
    assert wait_for(submit(batcher, function, 250, 1, 1, 1)) == [500, 2, 2, 2]
    with pytest.raises(
        ServingError, match="'double' .* 5 sentences.* have 1250 bytes.* 1000, four times max_batch_bytes"
    ) as caught:
        submit(batcher, function, 250, 1, 1, 1, 1)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert function.batches == [[5000], [250, 1, 1, 1]] and batcher.waiting == 0
    assert wait_for(submit(batcher, Doubler(), 250, 1, 1, 1, 1)) == [500, 2, 2, 2, 2]


def test_one_stream_is_reserved_for_small_rows(make_batcher):
    large, small = Doubler(), Doubler()
    large.gate.clear()
    batcher = make_batcher(size=1, streams=2)
    futures = [submit(batcher, large, 4000 + number) for number in range(4)]
    assert large.entered.wait(300)
    assert [wait_for(submit(batcher, small, number)) for number in range(20)] == [[2 * number] for number in range(20)]
    assert large.batches == [[4000]] and batcher.waiting == 3
    large.gate.set()
    assert [wait_for(future) for future in futures] == [[8000 + 2 * number] for number in range(4)]


def test_a_short_request_overtakes_long_ones(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=1)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, row) for row in (5000, 5001, 1)]
    function.gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [10000], [10002], [2]]
    assert function.batches == [[0], [1], [5000], [5001]]


def test_requests_that_would_wait_too_long_are_rejected_immediately(make_batcher):
    """Clients of a full queue used to wait 30 seconds for an error."""
    function = Doubler()
    batcher = make_batcher(size=1, cost=1000)
    for _ in range(100):
        batcher.pace.measure(3, 5000, 20.0)
        batcher.pace.measure(0, 1, 0.01)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, 5000) for _ in range(2)]
    with pytest.raises(ServingError, match="about 40 s, and this request has 30 s") as caught:
        submit(batcher, function, 5000)
    assert (caught.value.code, caught.value.retry_seconds) == (Code.UNAVAILABLE, 10)
    # Short requests do not wait for long requests.
    short = submit(batcher, function, 1)
    function.gate.set()
    assert [wait_for(future) for future in (first, *futures, short)] == [[0], [10000], [10000], [2]]
