"""Batches of functions: order, merging, failures, a full queue, and cancelled requests."""

from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_keras.serving.request_errors import Code, ServingError
from tests.serving.doubling import Doubler, occupy_stream, submit, wait_for
from tests.waiting import wait_until


def test_cancelling_does_not_stop_a_rerun_for_other_requests(make_batcher):
    batcher, function = make_batcher(size=4), Doubler()
    gone = occupy_stream(batcher, function)
    stopped = []

    class Failed:
        """A failed batch. When the lock is released, it runs again for other requests with a new cancellation."""

        key, is_done = (function, 0), True

        @property
        def cancellation(self):
            name = "of the failed run" if batcher._changed._is_owned() else "of the next run"
            return SimpleNamespace(cancel=lambda: stopped.append(name))

    failed = Failed()
    batcher._running.add(failed)
    gone.cancel()
    batcher._running.discard(failed)
    function.gate.set()
    assert stopped == ["of the failed run"]


def test_waiting_requests_are_merged_in_order_up_to_the_batch_size(make_batcher):
    function, batch_sizes = Doubler(), []
    batcher = make_batcher(size=4, on_batch=batch_sizes.append)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1, 2), (3,), (4, 5), (6,), (7,)]]
    assert batcher.waiting == 7
    function.gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [2, 4], [6], [8, 10], [12], [14]]
    # (4, 5) does not fit behind the three rows, and no later request overtakes it.
    assert function.batches == [[0], [1, 2, 3], [4, 5, 6, 7]]
    assert batch_sizes == [1, 3, 4] and batcher.waiting == 0


def test_the_first_row_is_merged_with_the_rows_of_the_nearest_cost(make_batcher):
    """Merging stays within a class of cost, here 129 to 512, and no request waits longer than those before it."""
    function = Doubler()
    batcher = make_batcher(size=3, cost=10**6)
    occupy_stream(batcher, function)
    numbers = [200, 500, 210, 400, 190, 205, 490]
    futures = [submit(batcher, function, number) for number in numbers]
    function.gate.set()
    assert [wait_for(future) for future in futures] == [[2 * number] for number in numbers]
    assert function.batches == [[0], [200, 205, 210], [500, 490, 400], [190]]


def test_large_requests_are_split_into_parts_of_similar_rows(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=2, cost=10**6)
    assert wait_for(submit(batcher, function, 300, 200, 301, 201)) == [600, 400, 602, 402]
    assert function.batches == [[200, 201], [300, 301]]


def test_requests_do_not_wait_if_a_stream_is_free(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=4, streams=2)
    first = occupy_stream(batcher, function)
    function.entered.clear()
    second = submit(batcher, function, 1)
    assert function.entered.wait(300) and batcher.waiting == 0
    futures = [submit(batcher, function, number) for number in (2, 3)]
    function.gate.set()
    assert [wait_for(future) for future in [first, second, *futures]] == [[0], [2], [4], [6]]
    assert function.batches == [[0], [1], [2, 3]]


def test_calls_that_cannot_be_merged_run_whole(make_batcher):
    function = Doubler(mergeable=False)
    batcher = make_batcher(size=4)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1,), (2, 3, 4, 5, 6), (7,)]]
    function.gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [2], [4, 6, 8, 10, 12], [14]]
    assert function.batches == [[0], [1], [2, 3, 4, 5, 6], [7]]


def test_large_requests_run_in_parts(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=4, streams=2)
    assert wait_for(submit(batcher, function, *range(10))) == [2 * number for number in range(10)]
    assert sorted(map(len, function.batches)) == [2, 4, 4]


def test_only_rows_of_similar_cost_are_merged(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=4)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, row) for row in (1, 600, 2, 2000, 3, 129, 512)]
    function.gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [2], [1200], [4], [4000], [6], [258], [1024]]
    # Short rows run first.
    assert function.batches == [[0], [1, 2, 3], [129, 512], [600, 2000]]


def test_requests_are_split_by_cost_and_results_keep_the_order(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=3)
    rows = [5000, 1, 600, 2, 5001, 3, 601, 4]
    assert wait_for(submit(batcher, function, *rows)) == [2 * row for row in rows]
    assert function.batches == [[1, 2, 3], [4], [600, 601], [5000, 5001]]


def test_batches_stay_within_the_maximum_cost(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=100, cost=1000)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(400, 401, 402), (403,), (404,), (5000, 5001)]]
    function.gate.set()
    expected = [[0], [800, 802, 804], [806], [808], [10000, 10002]]
    assert [wait_for(future) for future in [first, *futures]] == expected
    # The last part of a request waits behind requests that arrived meanwhile; one row may exceed the limit.
    assert sorted(function.batches) == sorted([[0], [400, 401], [403, 404], [402], [5000], [5001]])
    assert function.batches.index([403, 404]) < function.batches.index([402])


def test_other_requests_run_between_the_parts_of_a_large_request(make_batcher):
    function, other = Doubler(), Doubler()
    batcher = make_batcher(size=2)
    first = occupy_stream(batcher, function)
    long = submit(batcher, function, *range(1, 21))
    short = submit(batcher, other, 50)
    other_rows = submit(batcher, function, 60, 61)
    function.gate.set()
    assert wait_for(short) == [100] and wait_for(other_rows) == [120, 122]
    assert wait_for(long) == [2 * row for row in range(1, 21)] and wait_for(first) == [0]
    assert function.batches[:4] == [[0], [1, 2], [60, 61], [3, 4]]
    assert batcher.waiting == batcher.waiting_cost == 0


def test_an_empty_queue_accepts_any_request(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=2, queue=3)
    first = occupy_stream(batcher, function)
    large = submit(batcher, function, 500, 501)
    with pytest.raises(ServingError, match="2 sentences wait, 1001 bytes"):
        submit(batcher, function, 1)
    function.gate.set()
    assert [wait_for(first), wait_for(large)] == [[0], [1000, 1002]]


def test_rows_of_a_failed_batch_are_counted_once(make_batcher):
    function, batch_sizes = Doubler(bad=2), []
    batcher = make_batcher(size=4, on_batch=batch_sizes.append)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, number) for number in range(1, 4)]
    function.gate.set()
    assert [wait_for(first), wait_for(futures[0]), wait_for(futures[2])] == [[0], [2], [6]]
    assert batch_sizes == [1, 3]


def test_signatures_are_not_mixed(make_batcher):
    functions = [Doubler(), Doubler()]
    batcher = make_batcher(size=4)
    first = occupy_stream(batcher, functions[0])
    futures = [submit(batcher, functions[number % 2], number) for number in range(6)]
    functions[0].gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [0], [2], [4], [6], [8], [10]]
    assert [function.batches for function in functions] == [[[0], [0, 2, 4]], [[1, 3, 5]]]


def test_an_invalid_request_does_not_affect_its_batch(make_batcher):
    function = Doubler(bad=2)
    batcher = make_batcher(size=4)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, number) for number in range(1, 5)]
    function.gate.set()
    with pytest.raises(ServingError, match="no 2") as caught:
        futures[1].result(300)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert [wait_for(future) for future in [first, futures[0], *futures[2:]]] == [[0], [2], [6], [8]]
    assert function.batches == [[0], [1, 2, 3, 4], [1], [2], [3], [4]]


def test_abandoned_parts_of_a_failed_batch_do_not_run_again(make_batcher):
    class Abandoned(Doubler):
        """The server stops while the first part runs again."""

        def run(self, inputs):
            if inputs["x"].tolist() == [1]:
                batcher.abandon()
            return super().run(inputs)

    batcher, function = make_batcher(size=4), Abandoned(bad=3)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, number) for number in (1, 2, 3)]
    function.gate.set()
    assert wait_for(first) == [0]
    for future in futures:
        with pytest.raises(ServingError, match="stopping"):
            future.result(300)
    batcher._streams[0].join(300)
    assert function.batches == [[0], [1, 2, 3], [1]]


def test_a_failed_part_removes_the_other_parts_from_the_queue(make_batcher):
    function = Doubler(bad=1)
    batcher = make_batcher(size=2)
    first = occupy_stream(batcher, function)
    future = submit(batcher, function, *range(20))
    function.gate.set()
    with pytest.raises(ServingError, match="no 1"):
        future.result(300)
    assert wait_for(first) == [0]
    assert wait_for(submit(batcher, function, 7)) == [14]
    assert batcher.waiting == 0 and [18, 19] not in function.batches


def test_outputs_with_a_different_number_of_rows_are_not_split(make_batcher):
    class Summing(Doubler):
        def run(self, inputs):
            super().run(inputs)
            return {"y": inputs["x"].sum(keepdims=True)}

    function = Summing()
    batcher = make_batcher(size=4)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1, 2), (3,)]]
    function.gate.set()
    assert [wait_for(future) for future in [first, *futures]] == [[0], [3], [3]]
    with pytest.raises(ServingError, match=r"'y' has the shape \[1\] for 4 rows") as caught:
        submit(batcher, function, *range(5)).result(300)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_unexpected_errors_become_errors_of_the_request(make_batcher):
    class Broken(Doubler):
        def run(self, inputs):
            raise KeyError("lost")

    with pytest.raises(ServingError, match="KeyError: 'lost'") as caught:
        submit(make_batcher(), Broken(), 1).result(300)
    assert caught.value.code is Code.INTERNAL
    assert isinstance(caught.value.__cause__, KeyError), "the log shows the cause"

    def fail(rows):
        raise RuntimeError("lost")

    batcher = make_batcher(on_batch=fail)
    for _ in range(2):  # the stream survives the error
        with pytest.raises(ServingError, match="^running a batch failed$"):
            submit(batcher, Doubler(), 1).result(300)


def test_a_full_queue_rejects_requests_and_recovers(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=2, queue=3)
    first = occupy_stream(batcher, function)
    waiting = submit(batcher, function, 1, 2)
    with pytest.raises(ServingError, match="2 sentences wait, 2 bytes .* 2 more .* max_queue_bytes=3") as caught:
        submit(batcher, function, 3, 4)
    assert caught.value.code is Code.UNAVAILABLE
    fits = submit(batcher, function, 5)
    continued = batcher.submit(function, {"x": np.array([9])}, np.array([1]), None)  # continues a started request
    function.gate.set()
    assert [wait_for(future) for future in (first, waiting, fits, continued)] == [[0], [2, 4], [10], [18]]
    assert wait_for(submit(batcher, function, 3, 4)) == [6, 8]


def test_cancelled_requests_leave_the_queue(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=2, queue=6)
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, 1), submit(batcher, function, *range(10, 14)), submit(batcher, function, 2)]
    assert batcher.waiting == 6
    assert futures[1].cancel()
    assert batcher.waiting == 2
    function.gate.set()
    assert [wait_for(future) for future in (first, futures[0], futures[2])] == [[0], [2], [4]]
    assert function.batches == [[0], [1, 2]]
    with pytest.raises(CancelledError):
        futures[1].result(300)


def test_closing_runs_waiting_requests_and_rejects_new_ones(make_batcher):
    function, batcher = Doubler(), make_batcher()
    futures = [occupy_stream(batcher, function), *(submit(batcher, function, number) for number in (1, 2))]
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(batcher.close, 300)
        wait_until(lambda: batcher._closed)
        function.gate.set()
        assert closing.result(300)
    assert [wait_for(future) for future in futures] == [[0], [2], [4]]
    with pytest.raises(ServingError, match="stopping") as caught:
        submit(batcher, function, 1)
    assert caught.value.code is Code.UNAVAILABLE


def test_closing_ends_the_stream_that_is_reserved_for_small_rows(make_batcher):
    large = Doubler()
    large.gate.clear()
    batcher = make_batcher(size=1, streams=2)
    futures = [submit(batcher, large, 4000 + number) for number in range(2)]
    assert large.entered.wait(300)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(batcher.close, 5)
        wait_until(lambda: batcher._closed and len(batcher._changed._waiters) == 1)
        large.gate.set()
        assert closing.result(300)
    assert [wait_for(future) for future in futures] == [[8000], [8002]]
    assert not any(stream.is_alive() for stream in batcher._streams)


def test_closing_stops_waiting_after_a_timeout(make_batcher):
    function = Doubler()
    batcher = make_batcher()
    first = occupy_stream(batcher, function)
    waiting = submit(batcher, function, 1)
    assert not batcher.close(0.05)
    for future in (first, waiting):
        with pytest.raises(ServingError, match="stopping"):
            future.result(300)
    function.gate.set()


def test_the_pace_is_measured_by_cost(make_batcher, monkeypatch):
    batcher, function, measured = make_batcher(size=4), Doubler(), []
    monkeypatch.setattr(batcher.pace, "measure", lambda number, cost, seconds: measured.append((number, cost)))
    first = occupy_stream(batcher, function)
    futures = [submit(batcher, function, number) for number in (200, 210)]
    function.gate.set()
    assert [wait_for(future) for future in (first, *futures)] == [[0], [400], [420]]
    wait_until(lambda: len(measured) == 2)
    assert measured == [(0, 1), (1, 410)]


def test_forecast_of_large_rows_ignores_the_reserved_stream(make_batcher):
    function = Doubler()
    batcher = make_batcher(size=1, cost=1000, streams=2)
    for _ in range(100):
        batcher.pace.measure(3, 5000, 20.0)
    function.gate.clear()
    futures = [submit(batcher, function, 5000)]
    assert function.entered.wait(300)
    futures += [submit(batcher, function, 5000) for _ in range(2)]
    try:
        with pytest.raises(ServingError, match="about 40 s, and this request has 30 s"):
            submit(batcher, function, 5000)
    finally:
        function.gate.set()
    assert [wait_for(future) for future in futures] == [[10000]] * 3


def test_batch_of_exactly_the_maximum_cost(make_batcher):
    function = Doubler()
    assert wait_for(submit(make_batcher(size=100, cost=1000), function, 500, 500)) == [1000, 1000]
    assert function.batches == [[500, 500]]
