"""The turns of a streamed translation, without a network."""

import asyncio
import types
from concurrent.futures import Future

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_signatures import Signature
from t2t_keras.serving.translation_stream import TranslationStream, complete_stream, streaming_signature

TEXT, NUMBER = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)


def model(*without):
    """Counts its steps: its answer is whole after five."""
    begun = []

    def begin(text):
        begun.append(text.numpy().tolist())
        return {"state_000": tf.constant(0)}

    def advance(steps, state_000):
        made = state_000 + steps
        return {"state_000": made, "made": made, "done": made >= 5}

    state = {"state_000": NUMBER}
    signatures = [
        Signature("serving_default", {"text": TEXT}, {"made": TEXT}, None),
        Signature("stream_begin", {"text": TEXT}, state, begin),
        Signature("stream_advance", {"steps": NUMBER, **state}, {**state, "made": NUMBER, "done": NUMBER}, advance),
    ]
    named = {signature.name: signature for signature in signatures if signature.name not in without}
    return types.SimpleNamespace(version=3, signatures=named), begun


def test_each_call_goes_on_where_the_last_one_ended():
    loaded, begun = model()
    signature = streaming_signature(loaded)
    assert not signature.mergeable
    assert set(signature.outputs) == {"made", "done"}
    text = {"text": np.array([b"a"], object)}
    found = [signature.run(text) for _ in range(3)]
    assert [outputs["made"] for outputs in found] == [2, 4, 6]
    assert [outputs["done"] for outputs in found] == [False, False, True]
    assert begun == [[b"a"]], "a text is begun once"
    assert streaming_signature(loaded).run(text)["made"] == 2, "and every request has its own state"


@pytest.mark.parametrize("name", ["serving_default", "stream_begin", "stream_advance"])
def test_a_model_without_the_signatures(name):
    with pytest.raises(ServingError, match="^version 3 has no signatures 'stream_begin' and 'stream_advance'") as error:
        streaming_signature(model(name)[0])
    assert error.value.code is Code.UNIMPLEMENTED


class Turns:
    """Notes what is queued, waited for and ended."""

    def __init__(self):
        self.futures = [Future()]
        self.seconds = []
        self.ended = 0
        self.whole = []
        self.stream = TranslationStream(self.futures[0], self.submit, self.outputs, 100.0, self.whole.append, self.end)

    def submit(self):
        self.futures.append(Future())
        return self.futures[-1]

    async def outputs(self, future, seconds):
        self.seconds.append(seconds)
        assert future is self.futures[-1]
        return {"made": len(self.futures), "done": np.array(len(self.futures) == 2)}

    def end(self):
        self.ended += 1


def test_a_turn_is_queued_when_the_one_before_is_over():
    turns = Turns()

    async def all_turns():
        return [await turns.stream.turn(), await turns.stream.turn()]

    assert asyncio.run(all_turns()) == [({"made": 1}, False), ({"made": 2}, True)]
    assert 100.0 >= turns.seconds[0] >= turns.seconds[1] > 0, "the time is that of all turns together"
    assert turns.whole == [{"made": 2}]
    assert turns.ended == 0
    turns.stream.close()
    turns.stream.close()
    assert turns.ended == 1


def test_what_is_there_already_comes_in_one_turn():
    stream = complete_stream({"made": 7})
    assert asyncio.run(stream.turn()) == ({"made": 7}, True)
    stream.close()


def test_what_nobody_has_waited_for_is_cancelled():
    turns = Turns()
    turns.stream.close()
    assert turns.futures[0].cancelled()
    assert turns.ended == 1
