"""Waits until something is so, and gives up only if a test hangs."""

import time


def wait_until(true):
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
