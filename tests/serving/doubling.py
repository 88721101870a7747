"""A signature that doubles numbers, for tests of batchers."""

import threading

import numpy as np

from t2t_keras.serving.request_errors import Code, ServingError


class Doubler:
    """Doubles its input, records its batches, waits at a gate, and rejects one value."""

    name = "double"

    def __init__(self, mergeable=True, bad=None):
        self.mergeable = mergeable
        self.bad = bad
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def run(self, inputs):
        rows = inputs["x"].tolist()
        self.batches.append(rows)
        self.entered.set()
        assert self.gate.wait(300)
        if self.bad in rows:
            raise ServingError(Code.INVALID_ARGUMENT, f"no {self.bad}")
        return {"y": inputs["x"] * 2}


def submit(batcher, function, *rows):
    """Numbers of 100 or more cost their value, and other numbers cost 1."""
    costs = np.array([row if row >= 100 else 1 for row in rows])
    return batcher.submit(function, {"x": np.array(rows)}, costs, 30.0)


def wait_for(future):
    return future.result(300)["y"].tolist()


def occupy_stream(batcher, function):
    """Occupies the only stream, so that later requests wait."""
    function.gate.clear()
    first = submit(batcher, function, 0)
    assert function.entered.wait(300)
    return first
