"""The steps of a streamed translation, without a network."""

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


def counting_model(*without):
    """A model that counts steps and is done after five; also returns the texts of its calls."""
    texts = []

    def begin(text):
        texts.append(text.numpy().tolist())
        return {"state_000": tf.constant(0)}

    def advance(steps, state_000):
        count = state_000 + steps
        return {"state_000": count, "made": count, "done": count >= 5}

    state = {"state_000": NUMBER}
    signatures = [
        Signature("serving_default", {"text": TEXT}, {"made": TEXT}, None),
        Signature("stream_begin", {"text": TEXT}, state, begin),
        Signature("stream_advance", {"steps": NUMBER, **state}, {**state, "made": NUMBER, "done": NUMBER}, advance),
    ]
    named = {signature.name: signature for signature in signatures if signature.name not in without}
    return types.SimpleNamespace(version=3, signatures=named), texts


def test_calls_continue_the_stream():
    model, texts = counting_model()
    signature = streaming_signature(model)
    assert not signature.mergeable
    assert set(signature.outputs) == {"made", "done"}
    text = {"text": np.array([b"a"], object)}
    calls = [signature.run(text) for _ in range(3)]
    assert [outputs["made"] for outputs in calls] == [2, 4, 6]
    assert [outputs["done"] for outputs in calls] == [False, False, True]
    assert texts == [[b"a"]], "the text is encoded once"
    assert streaming_signature(model).run(text)["made"] == 2, "each request has a separate state"


@pytest.mark.parametrize("name", ["serving_default", "stream_begin", "stream_advance"])
def test_model_without_streaming_signatures(name):
    with pytest.raises(ServingError, match="^version 3 has no signatures 'stream_begin' and 'stream_advance'") as error:
        streaming_signature(counting_model(name)[0])
    assert error.value.code is Code.UNIMPLEMENTED


class RecordedStream:
    """Records the calls of a stream."""

    def __init__(self):
        self.futures = [Future()]
        self.seconds = []
        self.ended = 0
        self.results = []
        self.stream = TranslationStream(
            self.futures[0], self.submit, self.outputs, 100.0, self.results.append, self.end
        )

    def submit(self):
        self.futures.append(Future())
        return self.futures[-1]

    async def outputs(self, future, seconds):
        self.seconds.append(seconds)
        assert future is self.futures[-1]
        return {"made": len(self.futures), "done": np.array(len(self.futures) == 2)}

    def end(self):
        self.ended += 1


def test_turns_are_queued_one_after_the_other():
    recorded = RecordedStream()

    async def all_turns():
        return [await recorded.stream.turn(), await recorded.stream.turn()]

    assert asyncio.run(all_turns()) == [({"made": 1}, False), ({"made": 2}, True)]
    assert 100.0 >= recorded.seconds[0] >= recorded.seconds[1] > 0, "the time limit applies to all turns together"
    assert recorded.results == [{"made": 2}]
    assert recorded.ended == 0
    recorded.stream.close()
    recorded.stream.close()
    assert recorded.ended == 1


def test_complete_results_take_one_turn():
    stream = complete_stream({"made": 7})
    assert asyncio.run(stream.turn()) == ({"made": 7}, True)
    stream.close()


def test_closing_cancels_the_pending_turn():
    recorded = RecordedStream()
    recorded.stream.close()
    assert recorded.futures[0].cancelled()
    assert recorded.ended == 1
