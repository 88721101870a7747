"""Work in threads: results, exceptions, and results that nobody awaits."""

import asyncio
import threading

import pytest

from t2t_keras.serving import off_loop

LARGE = 1 << 20


@pytest.mark.parametrize("num_bytes", [1, LARGE])
def test_results_and_exceptions_of_the_function(num_bytes):
    assert asyncio.run(off_loop.run(num_bytes, divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(off_loop.run(num_bytes, divmod, 7, 0))


def test_only_large_work_leaves_the_event_loop():
    assert asyncio.run(off_loop.run(1, threading.get_ident)) == threading.get_ident()
    assert asyncio.run(off_loop.run(LARGE, threading.get_ident)) != threading.get_ident()


@pytest.mark.parametrize("fails", [False, True])
def test_results_that_nobody_awaits_are_passed_to_give_up(fails):
    started, resume, given_up = threading.Event(), threading.Event(), []

    def work():
        started.set()
        assert resume.wait(300)
        return 1 / 0 if fails else "result"

    async def run():
        waiting = asyncio.create_task(off_loop.run(LARGE, work, give_up=given_up.append))
        await asyncio.to_thread(started.wait, 300)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() and not given_up
        resume.set()
        while not fails and not given_up:
            await asyncio.sleep(0.001)

    asyncio.run(run())
    assert given_up == ([] if fails else ["result"])
