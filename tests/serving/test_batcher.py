"""Batches with functions of known doings: order, merging, failures, a full queue, requests given up."""

from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_keras.serving.request_errors import Code, ServingError
from tests.serving.doubling import Doubler, answer, behind_a_gate, submit
from tests.waiting import wait_until


def test_who_hangs_up_does_not_stop_what_runs_again_for_others(make):
    batcher, function = make(size=4), Doubler()
    gone = behind_a_gate(batcher, function)
    stopped = []

    class Failed:
        """A batch in vain that, as soon as the lock is free, runs again for others, with another cancellation."""

        key, is_done = (function, 0), True

        @property
        def cancellation(self):
            name = "its own" if batcher._changed._is_owned() else "that of others"
            return SimpleNamespace(cancel=lambda: stopped.append(name))

    failed = Failed()
    batcher._running.add(failed)
    gone.cancel()
    batcher._running.discard(failed)
    function.gate.set()
    assert stopped == ["its own"]


def test_what_waits_is_merged_in_order_up_to_the_size(make):
    function, told = Doubler(), []
    batcher = make(size=4, on_batch=told.append)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1, 2), (3,), (4, 5), (6,), (7,)]]
    assert batcher.waiting == 7
    function.gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [2, 4], [6], [8, 10], [12], [14]]
    # (4, 5) does not fit behind the three rows, and nothing overtakes it.
    assert function.batches == [[0], [1, 2, 3], [4, 5, 6, 7]]
    assert told == [1, 3, 4] and batcher.waiting == 0


def test_with_what_came_first_goes_what_is_most_like_it(make):
    """Within a class of cost, here 129 to 512; and nobody waits for longer than until everything before has run."""
    function = Doubler()
    batcher = make(size=3, cost=10**6)
    behind_a_gate(batcher, function)
    numbers = [200, 500, 210, 400, 190, 205, 490]
    futures = [submit(batcher, function, number) for number in numbers]
    function.gate.set()
    assert [answer(future) for future in futures] == [[2 * number] for number in numbers]
    assert function.batches == [[0], [200, 205, 210], [500, 490, 400], [190]]


def test_a_long_request_is_cut_into_parts_of_like_rows(make):
    function = Doubler()
    batcher = make(size=2, cost=10**6)
    assert answer(submit(batcher, function, 300, 200, 301, 201)) == [600, 400, 602, 402]
    assert function.batches == [[200, 201], [300, 301]]


def test_who_finds_a_free_stream_waits_for_nobody(make):
    function = Doubler()
    batcher = make(size=4, streams=2)
    first = behind_a_gate(batcher, function)
    function.entered.clear()
    second = submit(batcher, function, 1)
    assert function.entered.wait(300) and batcher.waiting == 0
    futures = [submit(batcher, function, number) for number in (2, 3)]
    function.gate.set()
    assert [answer(future) for future in [first, second, *futures]] == [[0], [2], [4], [6]]
    assert function.batches == [[0], [1], [2, 3]]


def test_what_must_not_be_merged_runs_alone_and_whole(make):
    function = Doubler(mergeable=False)
    batcher = make(size=4)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1,), (2, 3, 4, 5, 6), (7,)]]
    function.gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [2], [4, 6, 8, 10, 12], [14]]
    assert function.batches == [[0], [1], [2, 3, 4, 5, 6], [7]]


def test_a_long_request_runs_in_parts(make):
    function = Doubler()
    batcher = make(size=4, streams=2)
    assert answer(submit(batcher, function, *range(10))) == [2 * number for number in range(10)]
    assert sorted(map(len, function.batches)) == [2, 4, 4]


def test_only_rows_of_about_the_same_cost_are_merged(make):
    function = Doubler()
    batcher = make(size=4)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, row) for row in (1, 600, 2, 2000, 3, 129, 512)]
    function.gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [2], [1200], [4], [4000], [6], [258], [1024]]
    # The short ones first.
    assert function.batches == [[0], [1, 2, 3], [129, 512], [600, 2000]]


def test_a_request_of_long_and_short_rows_is_parted_by_cost_and_comes_back_in_order(make):
    function = Doubler()
    batcher = make(size=3)
    rows = [5000, 1, 600, 2, 5001, 3, 601, 4]
    assert answer(submit(batcher, function, *rows)) == [2 * row for row in rows]
    assert function.batches == [[1, 2, 3], [4], [600, 601], [5000, 5001]]


def test_a_batch_costs_no_more_than_it_may(make):
    function = Doubler()
    batcher = make(size=100, cost=1000)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(400, 401, 402), (403,), (404,), (5000, 5001)]]
    function.gate.set()
    wanted = [[0], [800, 802, 804], [806], [808], [10000, 10002]]
    assert [answer(future) for future in [first, *futures]] == wanted
    # The last of a request's parts waits behind what came meanwhile; a row alone may cost what it will.
    assert sorted(function.batches) == sorted([[0], [400, 401], [403, 404], [402], [5000], [5001]])
    assert function.batches.index([403, 404]) < function.batches.index([402])


def test_a_long_request_lets_others_have_their_turns(make):
    function, other = Doubler(), Doubler()
    batcher = make(size=2)
    first = behind_a_gate(batcher, function)
    long = submit(batcher, function, *range(1, 21))
    short = submit(batcher, other, 50)
    again = submit(batcher, function, 60, 61)
    function.gate.set()
    assert answer(short) == [100] and answer(again) == [120, 122]
    assert answer(long) == [2 * row for row in range(1, 21)] and answer(first) == [0]
    assert function.batches[:4] == [[0], [1, 2], [60, 61], [3, 4]]
    assert batcher.waiting == batcher.waiting_cost == 0


def test_whatever_a_request_costs_it_may_wait_alone(make):
    function = Doubler()
    batcher = make(size=2, queue=3)
    first = behind_a_gate(batcher, function)
    large = submit(batcher, function, 500, 501)
    with pytest.raises(ServingError, match="2 sentences wait, 1001 bytes"):
        submit(batcher, function, 1)
    function.gate.set()
    assert [answer(first), answer(large)] == [[0], [1000, 1002]]


def test_rows_of_a_batch_that_fails_are_counted_once(make):
    function, told = Doubler(bad=2), []
    batcher = make(size=4, on_batch=told.append)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, number) for number in range(1, 4)]
    function.gate.set()
    assert [answer(first), answer(futures[0]), answer(futures[2])] == [[0], [2], [6]]
    assert told == [1, 3]


def test_signatures_are_not_mixed(make):
    functions = [Doubler(), Doubler()]
    batcher = make(size=4)
    first = behind_a_gate(batcher, functions[0])
    futures = [submit(batcher, functions[number % 2], number) for number in range(6)]
    functions[0].gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [0], [2], [4], [6], [8], [10]]
    assert [function.batches for function in functions] == [[[0], [0, 2, 4]], [[1, 3, 5]]]


def test_one_bad_request_fails_alone(make):
    function = Doubler(bad=2)
    batcher = make(size=4)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, number) for number in range(1, 5)]
    function.gate.set()
    with pytest.raises(ServingError, match="no 2") as caught:
        futures[1].result(300)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert [answer(future) for future in [first, futures[0], *futures[2:]]] == [[0], [2], [6], [8]]
    assert function.batches == [[0], [1, 2, 3, 4], [1], [2], [3], [4]]


def test_parts_of_a_failed_batch_are_abandoned_before_their_rerun(make):
    class Abandoned(Doubler):
        """The server stops while the first part runs again."""

        def run(self, inputs):
            if inputs["x"].tolist() == [1]:
                batcher.abandon()
            return super().run(inputs)

    batcher, function = make(size=4), Abandoned(bad=3)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, number) for number in (1, 2, 3)]
    function.gate.set()
    assert answer(first) == [0]
    for future in futures:
        with pytest.raises(ServingError, match="stopping"):
            future.result(300)
    batcher._streams[0].join(300)
    assert function.batches == [[0], [1, 2, 3], [1]]


def test_a_long_request_that_fails_leaves_nothing_waiting(make):
    function = Doubler(bad=1)
    batcher = make(size=2)
    first = behind_a_gate(batcher, function)
    future = submit(batcher, function, *range(20))
    function.gate.set()
    with pytest.raises(ServingError, match="no 1"):
        future.result(300)
    assert answer(first) == [0]
    assert answer(submit(batcher, function, 7)) == [14]
    assert batcher.waiting == 0 and [18, 19] not in function.batches


def test_a_model_that_gives_other_rows_is_not_cut_up(make):
    class Summing(Doubler):
        def run(self, inputs):
            super().run(inputs)
            return {"y": inputs["x"].sum(keepdims=True)}

    function = Summing()
    batcher = make(size=4)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, *rows) for rows in [(1, 2), (3,)]]
    function.gate.set()
    assert [answer(future) for future in [first, *futures]] == [[0], [3], [3]]
    with pytest.raises(ServingError, match=r"'y' has the shape \[1\] for 4 rows") as caught:
        submit(batcher, function, *range(5)).result(300)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_an_error_of_any_kind_is_one_for_the_client(make):
    class Broken(Doubler):
        def run(self, inputs):
            raise KeyError("lost")

    with pytest.raises(ServingError, match="KeyError: 'lost'") as caught:
        submit(make(), Broken(), 1).result(300)
    assert caught.value.code is Code.INTERNAL
    assert isinstance(caught.value.__cause__, KeyError), "the log shows where it comes from"

    def fail(rows):
        raise RuntimeError("lost")

    batcher = make(on_batch=fail)
    for _ in range(2):  # the stream outlives it
        with pytest.raises(ServingError, match="^running a batch failed$"):
            submit(batcher, Doubler(), 1).result(300)


def test_a_full_queue_refuses_at_once_and_recovers(make):
    function = Doubler()
    batcher = make(size=2, queue=3)
    first = behind_a_gate(batcher, function)
    waiting = submit(batcher, function, 1, 2)
    with pytest.raises(ServingError, match="2 sentences wait, 2 bytes .* 2 more .* max_queue_bytes=3") as caught:
        submit(batcher, function, 3, 4)
    assert caught.value.code is Code.UNAVAILABLE
    fits = submit(batcher, function, 5)
    begun = batcher.submit(function, {"x": np.array([9])}, np.array([1]), None)  # continues work that has started
    function.gate.set()
    assert [answer(future) for future in (first, waiting, fits, begun)] == [[0], [2, 4], [10], [18]]
    assert answer(submit(batcher, function, 3, 4)) == [6, 8]


def test_what_is_given_up_is_never_run_and_leaves_the_queue(make):
    function = Doubler()
    batcher = make(size=2, queue=6)
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, 1), submit(batcher, function, *range(10, 14)), submit(batcher, function, 2)]
    assert batcher.waiting == 6
    assert futures[1].cancel()
    assert batcher.waiting == 2
    function.gate.set()
    assert [answer(future) for future in (first, futures[0], futures[2])] == [[0], [2], [4]]
    assert function.batches == [[0], [1, 2]]
    with pytest.raises(CancelledError):
        futures[1].result(300)


def test_closing_runs_what_waits_and_refuses_what_comes(make):
    function, batcher = Doubler(), make()
    futures = [behind_a_gate(batcher, function), *(submit(batcher, function, number) for number in (1, 2))]
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(batcher.close, 300)
        wait_until(lambda: batcher._closed)
        function.gate.set()
        assert closing.result(300)
    assert [answer(future) for future in futures] == [[0], [2], [4]]
    with pytest.raises(ServingError, match="stopping") as caught:
        submit(batcher, function, 1)
    assert caught.value.code is Code.UNAVAILABLE


def test_closing_ends_streams_that_wait_beside_large_rows(make):
    large = Doubler()
    large.gate.clear()
    batcher = make(size=1, streams=2)
    futures = [submit(batcher, large, 4000 + number) for number in range(2)]
    assert large.entered.wait(300)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(batcher.close, 5)
        wait_until(lambda: batcher._closed and len(batcher._changed._waiters) == 1)
        large.gate.set()
        assert closing.result(300)
    assert [answer(future) for future in futures] == [[8000], [8002]]
    assert not any(stream.is_alive() for stream in batcher._streams)


def test_closing_does_not_wait_for_ever(make):
    function = Doubler()
    batcher = make()
    first = behind_a_gate(batcher, function)
    waiting = submit(batcher, function, 1)
    assert not batcher.close(0.05)
    for future in (first, waiting):
        with pytest.raises(ServingError, match="stopping"):
            future.result(300)
    function.gate.set()


def test_the_pace_is_measured_by_cost(make, monkeypatch):
    batcher, function, measured = make(size=4), Doubler(), []
    monkeypatch.setattr(batcher.pace, "measure", lambda number, cost, seconds: measured.append((number, cost)))
    first = behind_a_gate(batcher, function)
    futures = [submit(batcher, function, number) for number in (200, 210)]
    function.gate.set()
    assert [answer(future) for future in (first, *futures)] == [[0], [400], [420]]
    wait_until(lambda: len(measured) == 2)
    assert measured == [(0, 1), (1, 410)]


def test_large_rows_wait_for_the_streams_that_take_them(make):
    function = Doubler()
    batcher = make(size=1, cost=1000, streams=2)
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
    assert [answer(future) for future in futures] == [[10000]] * 3


def test_a_batch_may_cost_all_that_it_may(make):
    function = Doubler()
    assert answer(submit(make(size=100, cost=1000), function, 500, 500)) == [1000, 1000]
    assert function.batches == [[500, 500]]
