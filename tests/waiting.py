"""Waiting for conditions; a test that hangs fails."""

import time


def wait_until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
