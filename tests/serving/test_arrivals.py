"""The event loop receives results, errors and cancellations of threads, and threads receive its cancellations."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from t2t_keras.serving.arrivals import wait_for, waking_once


def start_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


async def start_tasks(*futures):
    """Starts one task per future, which waits for the future."""
    tasks = [asyncio.create_task(wait_for(future)) for future in futures]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("before", [True, False], ids=["before the wait", "during the wait"])
def test_results_and_errors_arrive(before):
    async def run():
        result, error = Future(), Future()

        def work():
            result.set_result(5)
            error.set_exception(ValueError("from a thread"))

        if before:
            work()
        tasks = await start_tasks(result, error)
        if not before:
            start_thread(work)
        return await asyncio.gather(*tasks, return_exceptions=True)

    value, error = asyncio.run(run())
    assert value == 5
    assert isinstance(error, ValueError) and str(error) == "from a thread"


@pytest.mark.parametrize("cancelled", ["wait", "future", "wait for a running future"])
def test_cancelling_the_wait_or_the_future_cancels_both(cancelled):
    async def run():
        future = Future()
        (task,) = await start_tasks(future)
        if cancelled == "wait for a running future":
            future.set_running_or_notify_cancel()  # a running future cannot be cancelled
        if cancelled == "future":
            start_thread(future.cancel)
        else:
            task.cancel()
        await asyncio.wait([task])
        if cancelled == "wait for a running future":
            future.set_result(5)
            await asyncio.sleep(0)
        assert task.cancelled()
        return future.cancelled()

    assert asyncio.run(run()) == (cancelled != "wait for a running future")


def test_cancelling_a_wait_does_not_affect_other_waits():
    async def run():
        futures = [Future(), Future()]
        first, second = (asyncio.create_task(wait_for(future)) for future in futures)
        await asyncio.sleep(0)
        with waking_once():
            for number, future in enumerate(futures):
                future.set_result(number)
        first.cancel()  # before the loop receives the results
        return await asyncio.wait_for(second, 300)

    assert asyncio.run(run()) == 1


def test_a_thread_wakes_the_loop_once_per_group_of_results(monkeypatch):
    """The thread wakes the loop also if the block fails, and wakes it again for later results."""
    wake_ups = []

    async def run():
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *arguments: wake_ups.append(arguments) or wake(*arguments)
        )
        futures = [Future() for _ in range(9)]
        tasks = await start_tasks(*futures)
        with pytest.raises(KeyError), waking_once():
            for number, future in enumerate(futures[:8]):
                future.set_result(number)
            raise KeyError
        futures[8].set_result(8)
        return await asyncio.wait_for(asyncio.gather(*tasks), 300)

    assert asyncio.run(run()) == list(range(9))
    assert len(wake_ups) == 2


def test_results_after_the_end_of_the_loop_are_ignored():
    future = Future()
    future.set_running_or_notify_cancel()

    async def left():
        (task,) = await start_tasks(future)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(left())
    with waking_once():
        future.set_result(5)
