"""Work in threads: what it returns and raises, and what becomes of it when nobody waits any more."""

import asyncio
import threading

import pytest

from t2t_keras.serving import off_loop

LARGE = 1 << 20


@pytest.mark.parametrize("num_bytes", [1, LARGE])
def test_it_returns_and_raises_what_the_function_does(num_bytes):
    assert asyncio.run(off_loop.run(num_bytes, divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(off_loop.run(num_bytes, divmod, 7, 0))


def test_only_large_work_leaves_the_event_loop():
    assert asyncio.run(off_loop.run(1, threading.get_ident)) == threading.get_ident()
    assert asyncio.run(off_loop.run(LARGE, threading.get_ident)) != threading.get_ident()


@pytest.mark.parametrize("fails", [False, True])
def test_a_result_that_nobody_waits_for_is_given_up(fails):
    begun, goes_on, given_up = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert goes_on.wait(300)
        return 1 / 0 if fails else "result"

    async def run():
        waiting = asyncio.create_task(off_loop.run(LARGE, work, give_up=given_up.append))
        await asyncio.to_thread(begun.wait, 300)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() and not given_up
        goes_on.set()
        while not fails and not given_up:
            await asyncio.sleep(0.001)

    asyncio.run(run())
    assert given_up == ([] if fails else ["result"])
