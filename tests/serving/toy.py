"""A small SavedModel with signatures of all kinds that the server distinguishes."""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

GATE_SECONDS = 20.0
TEXT = tf.TensorSpec([None], tf.string, "text")


class Toy(tf.Module):
    """Reverses texts and converts them to upper case; `number` identifies the version."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = tf.Variable(number, dtype=tf.int32)

    @tf.function(input_signature=[TEXT])
    def translate(self, text):
        translation = tf.strings.reduce_join(
            tf.reverse(tf.strings.unicode_split(tf.strings.upper(text, "utf-8"), "UTF-8").to_tensor(""), [1]), axis=1
        )
        return {"translation": translation, "score": -0.1 * tf.cast(tf.strings.length(text), tf.float32)}

    @tf.function(input_signature=[TEXT])
    def single(self, text):
        return {"version": tf.fill(tf.shape(text), self.number)}

    @tf.function(input_signature=[TEXT])
    def nbest(self, text):
        return {"translations": tf.stack([text, tf.strings.upper(text)], axis=1)}  # --> [batch, 2]

    @tf.function(input_signature=[TEXT])
    def picky(self, text):
        bad = tf.reduce_any(tf.equal(text, "bad"))
        with tf.control_dependencies([tf.debugging.Assert(~bad, ["no such word"])]):
            return {"translation": tf.identity(text)}

    @tf.function(input_signature=[TEXT])
    def gate(self, text):
        """Waits until a file with one of these names exists, for at most `GATE_SECONDS`."""
        end = tf.timestamp() + GATE_SECONDS

        def shut(rounds):
            del rounds
            return (tf.size(tf.io.matching_files(text)) == 0) & (tf.timestamp() < end)

        rounds = tf.while_loop(shut, lambda rounds: [rounds + 1], [tf.zeros([], tf.int32)], parallel_iterations=1)[0]
        return {"rounds": tf.fill(tf.shape(text), rounds)}

    @tf.function(input_signature=[TEXT])
    def endless(self, text):
        """Runs until it is stopped."""
        rounds = tf.while_loop(lambda rounds: rounds >= 0, lambda rounds: [tf.maximum(rounds, 1)], [tf.size(text)])[0]
        return {"rounds": tf.fill(tf.shape(text), rounds)}

    @tf.function(input_signature=[TEXT, tf.TensorSpec([None], tf.int64, "seed")])
    def sample(self, text, seed):
        return {"translation": tf.strings.join([text, tf.strings.as_string(seed)], "#")}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, "ids"), tf.TensorSpec([None], tf.int32, "length")]
    )
    def tokens(self, ids, length):
        return {"reversed": tf.reverse_sequence(ids, length, seq_axis=1), "sum": tf.reduce_sum(ids, axis=1)}

    @tf.function(input_signature=[TEXT])
    def pieces(self, text):
        """Returns pieces [batch, length], whose second dimension has any size."""
        return {"pieces": tf.strings.unicode_split(text, "UTF-8").to_tensor("")}

    @tf.function(input_signature=[TEXT])
    def square(self, text):
        """Returns a table float32 [batch, length, length] for the longest text."""
        length = tf.reduce_max(tf.strings.length(text))
        return {"table": tf.fill([tf.size(text), length, length], 0.1)}

    @tf.function(input_signature=[TEXT])
    def total(self, text):
        """Returns one number for all rows."""
        return {"total": tf.reduce_sum(tf.strings.length(text))}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, "number"),
            tf.TensorSpec([None], tf.bool, "flag"),
            tf.TensorSpec([None], tf.string, "raw"),
        ]
    )
    def kinds(self, number, flag, raw):
        return {"number": number, "flag": flag, "raw_bytes": raw, "int64": tf.cast(flag, tf.int64)}

    @tf.function(input_signature=[tf.TensorSpec([1], tf.string, "text")])
    def stream_begin(self, text):
        return {"state_000": text, "state_001": tf.constant(0)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.int32, "steps"),
            tf.TensorSpec([1], tf.string, "state_000"),
            tf.TensorSpec([], tf.int32, "state_001"),
        ]
    )
    def stream_advance(self, steps, state_000, state_001):
        """Writes a character per step; "endless" and a step of "stuck" never end, and "late" fails at its end."""
        count, text = state_001 + steps, state_000[0]
        rounds = tf.where(text == "stuck", 0, -1)
        rounds = tf.while_loop(lambda rounds: rounds >= 0, lambda rounds: [tf.maximum(rounds, 1)], [rounds])[0]
        whole = self.translate(state_000)
        is_whole = count >= tf.strings.length(text, "UTF8_CHAR")
        with tf.control_dependencies([tf.debugging.Assert(~is_whole | (text != "late"), ["no such word"]), rounds]):
            translation = tf.strings.substr(whole["translation"], 0, count, "UTF8_CHAR")
        done = is_whole & (text != "endless")
        return {"state_000": state_000, "state_001": count, "done": done, **whole, "translation": translation}


def save(export_dir: pathlib.Path, version: int, warm_up: list[str] | None = None) -> pathlib.Path:
    """Writes a version, with one warm-up request for each text of `warm_up`."""
    path = pathlib.Path(export_dir) / str(version)
    toy = Toy(version)
    names = ["single", "nbest", "picky", "gate", "endless", "sample", "tokens", "pieces", "square", "total", "kinds"]
    names += ["stream_begin", "stream_advance"]
    signatures = {"serving_default": toy.translate, **{name: getattr(toy, name) for name in names}}
    temporary = path.with_name(f".{version}.tmp")
    tf.saved_model.save(toy, str(temporary), signatures=signatures)
    if warm_up:
        (temporary / "assets.extra").mkdir()
        with tf.io.TFRecordWriter(str(temporary / "assets.extra" / "tf_serving_warmup_requests")) as writer:
            for text in warm_up:
                request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(signature_name="picky"))
                request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
                log = prediction_log_pb2.PredictLog(request=request)
                writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
    temporary.rename(path)
    return path
