"""What threads do reaches the event loop that waits for it: results, errors, and cancelling in both directions."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from t2t_keras.serving.arrivals import arrival, together


def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


async def waiting_for(*futures):
    """Tasks that wait for the futures, each begun."""
    tasks = [asyncio.create_task(arrival(future)) for future in futures]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("before", [True, False], ids=["before the wait", "during the wait"])
def test_a_result_and_an_error_arrive(before):
    async def run():
        result, error = Future(), Future()

        def work():
            result.set_result(5)
            error.set_exception(ValueError("from a thread"))

        if before:
            work()
        tasks = await waiting_for(result, error)
        if not before:
            in_a_thread(work)
        return await asyncio.gather(*tasks, return_exceptions=True)

    value, error = asyncio.run(run())
    assert value == 5
    assert isinstance(error, ValueError) and str(error) == "from a thread"


@pytest.mark.parametrize("cancelled", ["wait", "future", "wait for what runs"])
def test_cancelling_the_wait_or_the_future_cancels_both(cancelled):
    async def run():
        future = Future()
        (task,) = await waiting_for(future)
        if cancelled == "wait for what runs":
            future.set_running_or_notify_cancel()  # it cannot be cancelled any more
        if cancelled == "future":
            in_a_thread(future.cancel)
        else:
            task.cancel()
        await asyncio.wait([task])
        if cancelled == "wait for what runs":
            future.set_result(5)
            await asyncio.sleep(0)
        assert task.cancelled()
        return future.cancelled()

    assert asyncio.run(run()) == (cancelled != "wait for what runs")


def test_who_stops_waiting_keeps_no_other_from_its_answer():
    async def run():
        futures = [Future(), Future()]
        first, second = (asyncio.create_task(arrival(future)) for future in futures)
        await asyncio.sleep(0)
        with together():
            for number, future in enumerate(futures):
                future.set_result(number)
        first.cancel()  # before the loop is told
        return await asyncio.wait_for(second, 300)

    assert asyncio.run(run()) == 1


def test_a_thread_wakes_the_loop_once_for_all_that_it_did_together(monkeypatch):
    """Also if it fails in between; and by itself for what it does later."""
    wakes = []

    async def run():
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *arguments: wakes.append(arguments) or wake(*arguments)
        )
        futures = [Future() for _ in range(9)]
        tasks = await waiting_for(*futures)
        with pytest.raises(KeyError), together():
            for number, future in enumerate(futures[:8]):
                future.set_result(number)
            raise KeyError
        futures[8].set_result(8)
        return await asyncio.wait_for(asyncio.gather(*tasks), 300)

    assert asyncio.run(run()) == list(range(9))
    assert len(wakes) == 2


def test_a_future_that_ends_after_the_loop_is_harmless():
    future = Future()
    future.set_running_or_notify_cancel()

    async def left():
        (task,) = await waiting_for(future)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(left())
    with together():
        future.set_result(5)
