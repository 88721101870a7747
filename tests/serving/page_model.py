"""A SavedModel with the signatures that the page uses, and outputs that are easy to predict from the inputs."""

import json
import pathlib

import tensorflow as tf

TEXT = [tf.TensorSpec([None], tf.string, "text")]
CHOICE = [tf.TensorSpec([None], dtype, name) for name, dtype in (("target", tf.string), ("kind", tf.string))]
CHOICE = [*TEXT, *CHOICE, tf.TensorSpec([None], tf.int32, "layer")]
LOWEST = tf.float32.min


class Shouting(tf.Module):
    """Translates words into capitals, and rejects sentences with "bad"."""

    @tf.function(input_signature=TEXT)
    def translate(self, text):
        bad = tf.reduce_any(tf.strings.regex_full_match(text, ".*bad.*"))
        with tf.control_dependencies([tf.debugging.Assert(~bad, ["no such word"])]):
            score = -0.1 * tf.cast(tf.strings.length(text), tf.float32)
            return {"translation": tf.strings.upper(text, "utf-8"), "score": score}

    @tf.function(input_signature=TEXT)
    def nbest(self, text):
        """Two hypotheses and an empty third one."""
        hypotheses = [tf.strings.upper(text, "utf-8"), tf.strings.join([tf.strings.upper(text, "utf-8"), " TOO"])]
        scores = tf.tile([[-0.5, -1.25, LOWEST]], [tf.shape(text)[0], 1])  # --> [batch, 3]
        return {"translations": tf.stack([*hypotheses, tf.zeros_like(text)], axis=1), "scores": scores}

    @tf.function(input_signature=TEXT)
    def align(self, text):
        """Word i of n attends to word n - 1 - i with 3/4 and to word 0 with 1/4."""
        pieces = pieces_of(text)  # --> [batch, words]
        count = tf.reduce_sum(tf.cast(pieces != "", tf.int32), axis=1)
        opposite = tf.one_hot(count[:, None] - 1 - tf.range(tf.shape(pieces)[1]), tf.shape(pieces)[1])
        attention = 0.75 * opposite + 0.25 * tf.one_hot(tf.zeros_like(pieces, tf.int32), tf.shape(pieces)[1])
        capitals = tf.strings.upper(pieces, "utf-8")
        shouted = tf.strings.upper(text, "utf-8")
        return {"translation": shouted, "source_pieces": pieces, "target_pieces": capitals, "attention": attention}

    @tf.function(input_signature=CHOICE)
    def attention(self, text, target, kind, layer):
        """The first head attends to the same position in layer 0, and to the last word in layer 1.

        The second head attends to the first word, and the third is padding. The decoder has one layer, and the other
        kinds have two.
        """
        has_layer = layer < tf.where(kind == "decoder", 1, 2)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(has_layer), ["no such layer"])]):
            words, capitals = (pieces_of(tf.identity(side)) for side in (text, target))
        start = tf.fill([tf.shape(text)[0], 1], "<s>")
        inputs = tf.concat([start, capitals[:, :-1]], axis=1)
        length = tf.shape(words)[1]
        diagonal = tf.one_hot(tf.zeros_like(words, tf.int32) + tf.range(length), length)  # --> [batch, words, words]
        last = tf.one_hot(tf.zeros_like(words, tf.int32) + length - 1, length)
        first = tf.one_hot(tf.zeros_like(words, tf.int32), length)
        heads = tf.where(layer[:, None, None] == 0, diagonal, last)
        return {
            "query_pieces": tf.where((kind == "encoder")[:, None], words, capitals),
            "key_pieces": tf.where((kind == "decoder")[:, None], inputs, words),
            "attention": tf.stack([heads, first, tf.zeros_like(first)], axis=1),
            "num_layers": tf.where(kind == "decoder", 1, 2),
        }

    @tf.function(input_signature=[*TEXT, tf.TensorSpec([None], tf.string, "prefix")])
    def alternatives(self, text, prefix):
        """Continues the prefix with the rest of the translation, or with "NEW" or "OLD" as the next word."""
        rest = tf.strings.substr(
            tf.strings.upper(text, "utf-8"), tf.strings.length(prefix), tf.fill(tf.shape(text), 10_000)
        )
        rest = tf.strings.strip(rest)
        beginning = tf.where(prefix == "", "", tf.strings.join([prefix, " "]))
        after = tf.strings.regex_replace(rest, r"^\S+", "")
        hypotheses = [tf.strings.join([beginning, *some]) for some in (["NEW", after], [rest], ["OLD", after])]
        scores = tf.tile([[-0.5, -1.0, -1.5, LOWEST]], [tf.shape(text)[0], 1])  # --> [batch, 4]
        return {"translations": tf.stack([*hypotheses, tf.zeros_like(text)], axis=1), "scores": scores}

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
        """Writes one word per step; a text with "forever" never ends."""
        words = tf.strings.split(tf.strings.upper(state_000, "utf-8"))[0]
        num_words = state_001 + steps
        done = (num_words >= tf.size(words)) & ~tf.reduce_any(words == "FOREVER")
        translation = tf.strings.reduce_join(words[:num_words], separator=" ")
        outputs = {"translation": translation[tf.newaxis], "score": tf.constant([-0.5]), "done": done}
        return {"state_000": state_000, "state_001": num_words, **outputs}


def pieces_of(texts: tf.Tensor) -> tf.Tensor:
    words = tf.strings.split(texts).to_tensor("")
    return tf.where(words == "", "", tf.strings.join(["▁", words]))


def save(export_dir: pathlib.Path, *without: str, task: str = "translation", streams: bool = False) -> pathlib.Path:
    """Writes version 1 without some signatures, and with those for streaming only if `streams` is set."""
    model = Shouting()
    signatures = {"serving_default": model.translate, "nbest": model.nbest, "align": model.align}
    signatures |= {"attention": model.attention, "alternatives": model.alternatives}
    if streams:
        signatures |= {"stream_begin": model.stream_begin, "stream_advance": model.stream_advance}
    path = pathlib.Path(export_dir) / "1"
    selected = {name: function for name, function in signatures.items() if name not in without}
    tf.saved_model.save(model, str(path), signatures=selected)
    (path / "assets.extra").mkdir()
    config = {"data": {"source_language": "en", "target_language": "de", "task": task}}
    (path / "assets.extra" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return export_dir
