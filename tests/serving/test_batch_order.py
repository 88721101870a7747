"""Which batches run first, which are stopped, and which requests are refused before they wait."""

import threading

import pytest
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from tests.serving.doubling import Doubler, answer, behind_a_gate, submit


class Endless(Doubler):
    """A function of TensorFlow that ends only if it is stopped, but at once for 0."""

    def __init__(self, mergeable=True):
        super().__init__(mergeable)
        self.stopped = threading.Event()
        self.function = count.get_concrete_function()

    def run(self, inputs):
        self.batches.append(inputs["x"].tolist())
        self.entered.set()
        try:
            self.function(tf.constant(10**15 * int(inputs["x"].max()), tf.int64))
        except tf.errors.CancelledError:
            self.stopped.set()
            raise
        return {"y": inputs["x"] * 2}


@tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
def count(limit):
    return tf.while_loop(lambda number: number < limit, lambda number: [number + 1], [tf.zeros([], tf.int64)])[0]


@pytest.mark.parametrize("mergeable", [True, False])
def test_what_runs_is_stopped_once_it_is_given_up(make, mergeable):
    function = Endless(mergeable)
    batcher = make()
    future = submit(batcher, function, 1, 2)
    assert function.entered.wait(300)
    assert future.cancel() and function.stopped.wait(300)
    assert answer(submit(batcher, function, 0)) == [0]


def test_what_runs_together_is_stopped_only_once_nobody_waits_for_it(make):
    function = Endless()
    batcher = make(size=4)
    gate = Doubler()
    behind_a_gate(batcher, gate)
    futures = [submit(batcher, function, number) for number in (1, 2, 3)]
    gate.gate.set()
    assert function.entered.wait(300) and function.batches == [[1, 2, 3]]
    assert futures[0].cancel() and futures[1].cancel()
    assert not function.stopped.is_set()
    assert futures[2].cancel() and function.stopped.wait(300)
    assert function.batches == [[1, 2, 3]]


def test_closing_stops_what_runs(make):
    function = Endless()
    batcher = make()
    future = submit(batcher, function, 1)
    assert function.entered.wait(300)
    assert not batcher.close(0)
    with pytest.raises(ServingError, match="stopping"):
        future.result(300)
    assert function.stopped.wait(300)


def test_what_is_not_run_in_parts_is_no_larger_than_four_batches(make):
    """Two requests of 24 rows of 1,000 ids kept both streams busy for a minute."""
    function = Doubler(mergeable=False)
    batcher = make(cost=250)
    assert answer(submit(batcher, function, 5000)) == [10000]
    assert answer(submit(batcher, function, 250, 1, 1, 1)) == [500, 2, 2, 2]
    with pytest.raises(
        ServingError, match="'double' .* 5 sentences.* are 1250 bytes.* 1000, four times max_batch_bytes"
    ) as caught:
        submit(batcher, function, 250, 1, 1, 1, 1)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert function.batches == [[5000], [250, 1, 1, 1]] and batcher.waiting == 0
    assert answer(submit(batcher, Doubler(), 250, 1, 1, 1, 1)) == [500, 2, 2, 2, 2]


def test_one_stream_is_kept_free_of_large_rows(make):
    large, small = Doubler(), Doubler()
    large.gate.clear()
    batcher = make(size=1, streams=2)
    futures = [submit(batcher, large, 4000 + number) for number in range(4)]
    assert large.entered.wait(300)
    assert [answer(submit(batcher, small, number)) for number in range(20)] == [[2 * number] for number in range(20)]
    assert large.batches == [[4000]] and batcher.waiting == 3
    large.gate.set()
    assert [answer(future) for future in futures] == [[8000 + 2 * number] for number in range(4)]


def test_a_short_request_overtakes_long_ones(make):
    function = Doubler()
    batcher = make(size=1)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, row) for row in (5000, 5001, 1)]
    function.gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [10000], [10002], [2]]
    assert function.batches == [[0], [1], [5000], [5001]]


def test_what_would_wait_too_long_is_refused_at_once(make):
    """A full queue answered with an error only after the request's 30 seconds."""
    function = Doubler()
    batcher = make(size=1, cost=1000)
    for _ in range(100):
        batcher.pace.measure(3, 5000, 20.0)
        batcher.pace.measure(0, 1, 0.01)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, 5000) for _ in range(2)]
    with pytest.raises(ServingError, match="about 40 s, and this request has 30 s") as caught:
        submit(batcher, function, 5000)
    assert (caught.value.code, caught.value.retry_seconds) == (Code.UNAVAILABLE, 10)
    # A short one is not behind them.
    short = submit(batcher, function, 1)
    function.gate.set()
    assert [answer(future) for future in (first, *futures, short)] == [[0], [10000], [10000], [2]]
