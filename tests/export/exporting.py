"""A small translator to export, and unusual texts for it."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.config.data_config import Lowercase
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.search.batches import padded
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.truecase import Truecaser
from tests.inference import tiny

SENTENCEPIECE = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
# The limit is low, so that unusual texts are split and a request runs in several batches.
MAX_LENGTH = 24
FACTORS = (2.5, 0.875)  # scale the weights of two checkpoints
DECODE = DecodeConfig(beam_size=3, max_length_offset=8, tokens_per_batch=150)

TEXTS = [
    *(sentence.encode() for sentence in tiny.SENTENCES),
    b"",
    b" \t ",
    "\u00a0 \u3000".encode(),
    "\u200b\ufeff".encode(),
    b"A\tman\x00 is\r\nstanding\x1b",
    "日本 \U0001f600\u200d\U0001f525 ½ İΣ".encode(),
    b"<pad> </s> <unk> \xe2\x96\x81 \xe2\x81\x87",
    b"\xff\xfe A man",
    b"dogs \xed\xa0\x80\xc3",
    b"\xf0\x9f\x98 Hund \xe9",
    b"Two dogs play. " * 12,
    b"dog " * 50,
    b"a" * 200,
    "犬".encode() * 30,
    "Er ruft: „Hunde!“ (Zwei.) ... Schnee? ".encode() * 4 + b"\xa0",
    b" . " * 30,
    'Zwei Hunde.  Ein Mann steht!\r\n\n\tDr. Schnee spielt z. B. "im Schnee." 犬。犬！ '.encode()
    + b"dog " * 30
    + b".\nA man.",
]


def translator(
    config: DecodeConfig = DECODE, lowercase: Lowercase = "none", words: Sequence[str] = (), **arguments
) -> Translator:
    """Returns a translator with confident predictions, because its weights are larger than initial ones.

    The weights are the mean of the checkpoints of `make_run`. `words` is the list of the truecaser, if not empty.
    """
    model = Transformer(tiny.transformer().config)
    model.build()
    model.set_weights([sum(factor * weight for factor in FACTORS) / 2 for weight in tiny.transformer().get_weights()])
    data = DataConfig(max_length=MAX_LENGTH, lowercase=lowercase, truecase=bool(words))
    tokenizer = Tokenizer(tiny.tokenizer().serialized)
    tokenizer.truecaser = Truecaser(words) if words else None
    return Translator(tokenizer, model, TranslatorSettings(config, **arguments), data)


def config_of(translator: Translator) -> Config:
    """Returns the configuration of the translator's run."""
    data = dataclasses.replace(translator.data, vocab_size=tiny.tokenizer().vocab_size)
    assert isinstance(translator.model, Transformer)
    return Config(model=translator.model.config, data=data, decode=translator.config)


def make_run(folder: pathlib.Path) -> pathlib.Path:
    """Writes a run with two checkpoints."""
    vocab_path = folder / "vocab.model"
    vocab_path.write_bytes(tiny.tokenizer().serialized)
    the_run = Run(folder / "run")
    the_run.start(config_of(translator()), folder / "data", vocab_path)
    names, values = weight_names(tiny.transformer()), tiny.transformer().get_weights()
    for step, factor in enumerate(FACTORS, start=1):
        weights = {name: factor * value for name, value in zip(names, values, strict=True)}
        checkpoints.save(the_run.checkpoints_path, step, weights, {}, {})
    return the_run.path


# The texts as a `Translator` receives them.
LINES = [text.decode("utf-8", "replace") for text in TEXTS]
TARGETS = [TEXTS[(index * 3 + 1) % 9] for index in range(len(TEXTS))]
SEEDS = [7, -(2**62) + 3] * len(TEXTS)
ATTENTION = [("encoder", 0), ("decoder", 1), ("cross", 0), ("cross", 1)]
MIXED = [ATTENTION[index % len(ATTENTION)] for index in range(len(TEXTS))]
FEW = slice(14)  # The attention of all texts exceeds the limit of one request.
TOO_LONG = b"dog. " * 1200
LONG = b"dog. " * 400  # Short enough to be scored or aligned, but too long to pad many other lines to.


LENGTH = np.array([4], np.int32)


def array(texts: list[bytes]) -> np.ndarray:
    return np.array(texts, dtype=object)


def token_request(sources: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Returns a request with arbitrary ids behind the end of each source, which the model must ignore."""
    ids = padded(sources)
    lengths = np.array([len(source) for source in sources], np.int32)
    return {"source_ids": np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 9), "source_length": lengths}


def attention_request(choices: list[tuple[str, int]], rows: slice) -> dict[str, np.ndarray]:
    """Returns a request for the attention of some rows, with a kind and a layer for each."""
    kinds, layers = zip(*choices, strict=True)
    return {
        "text": array(TEXTS[rows]),
        "target": array(TARGETS[rows]),
        "kind": array([kind.encode() for kind in kinds]),
        "layer": np.array(layers, np.int32),
    }


def requests(sources: list[tuple[int, ...]]) -> dict[str, tuple | list]:
    """Returns requests, pairs of a signature and its inputs, or lists of them, by name."""
    text, seeds = {"text": array(TEXTS)}, np.array(SEEDS[: len(TEXTS)], np.int64)
    one = attention_request([("cross", 0)], slice(1))
    return {
        "serving_default": ("serving_default", text),
        "nbest": ("nbest", text),
        "sample": ("sample", {**text, "seed": seeds}),
        "score": ("score", {**text, "target": array(TARGETS)}),
        "tokens": ("tokens", token_request(sources)),
        "align": ("align", text),
        "attention": [("attention", attention_request([chosen] * 14, FEW)) for chosen in ATTENTION],
        "attention_mixed": ("attention", attention_request(MIXED[FEW], FEW)),
        "attention_one_by_one": [
            ("attention", attention_request([MIXED[i]], slice(i, i + 1))) for i in range(len(TEXTS))
        ],
        "one_by_one": [("serving_default", {"text": array([text])}) for text in TEXTS],
        "samples_one_by_one": [("sample", {"text": array([t]), "seed": seeds[i : i + 1]}) for i, t in enumerate(TEXTS)],
        "aligned_one_by_one": [("align", {"text": array([text])}) for text in TEXTS],
        "nothing": [(name, {"text": array([])}) for name in ("serving_default", "nbest", "align")],
        "no_pairs": ("score", {"text": array([]), "target": array([])}),
        "too_long_to_score": ("score", {"text": array([b"A", TOO_LONG]), "target": array([b"B", b"C"])}),
        "too_long_to_align": ("align", {"text": array([b"A", TOO_LONG])}),
        "attention_too_large": ("align", {"text": array([LONG, *[b"A"] * 255])}),
        "no_such_kind": ("attention", {**one, "kind": array([b"both"])}),
        "no_such_layer": ("attention", {**one, "layer": np.array([2], np.int32)}),
        "negative_layer": ("attention", {**one, "layer": np.array([-1], np.int32)}),
        "one_more_kind": ("attention", {**one, "kind": array([b"cross", b"cross"])}),
        "views_too_large": ("attention", {**one, "text": array([b"dog. " * 480])}),
        "too_many_ids": ("score", {"text": array([b"A"] * 100_000), "target": array([LONG, *[b"A"] * 99_999])}),
        "too_many_translations": ("nbest", {"text": array([LONG, *[b"A"] * 149_999])}),
        "source_too_long": ("tokens", token_request([(3,) * 30_000 + (1,)])),
        "long_padding": ("tokens", {"source_ids": np.full([1, 30_000], 3, np.int32), "source_length": LENGTH}),
        "one_length_for_two": ("tokens", {"source_ids": np.full([2, 4], 3, np.int32), "source_length": LENGTH}),
        "length_beyond_row": ("tokens", request_with_length(9)),
        "length_below_zero": ("tokens", request_with_length(-1)),
        "one_more_seed": ("sample", {"text": array([b"A"]), "seed": np.array([1, 2], np.int64)}),
        "one_more_target": ("score", {"text": array([b"A"]), "target": array([b"B", b"C"])}),
        "no_such_token": ("tokens", token_request([(5, 10**6, 1)])),
        "after_errors": ("serving_default", {"text": array(TEXTS[:1])}),
    }


def request_with_length(length: int) -> dict[str, np.ndarray]:
    """Returns two rows of two tokens; the second one states `length`."""
    return {"source_ids": np.full([2, 2], 3, np.int32), "source_length": np.array([2, length], np.int32)}


def warmup_requests(version: pathlib.Path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Returns the requests that a server runs before it answers."""
    records = tf.data.TFRecordDataset(str(version / "assets.extra" / "tf_serving_warmup_requests"))
    requests = []
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "tiny"
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        requests.append((request.model_spec.signature_name, inputs))
    return requests


def custom_operations(version: pathlib.Path) -> set[str]:
    """Returns the operations of an export's graphs that do not belong to TensorFlow."""
    (meta_graph,) = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs
    functions = meta_graph.graph_def.library.function
    nodes = [*meta_graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions} - {*dir(tf.raw_ops)}
