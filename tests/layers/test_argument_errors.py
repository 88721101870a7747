"""Each invalid argument of a layer or a call raises an error with its name and its valid values."""

import math
import re
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras import Transformer, layers

X = np.ones((2, 5, 8), "float32")
SIZES: dict[str, Any] = {"num_heads": 2, "d_ff": 12}
EXPERTS = {"num_experts": 2, "experts_per_token": 1, "d_expert": 3}
FROM_1, FROM_0 = "a whole number of at least 1", "a whole number of at least 0"
RATE, INITIALIZER = r"a number in \[0, 1\)", "a Keras initializer or its name"


@pytest.mark.parametrize(
    ("kind", "arguments", "name", "valid"),
    [
        (layers.MultiHeadAttention, {"num_heads": None}, "num_heads", FROM_1),
        (layers.MultiHeadAttention, {"num_heads": True}, "num_heads", FROM_1),
        (layers.MultiHeadAttention, {"num_heads": 2.0}, "num_heads", FROM_1),
        (layers.MultiHeadAttention, {"num_heads": 2, "d_key": -4}, "d_key", f"None or {FROM_1}"),
        (layers.MultiHeadAttention, {"num_heads": 2, "d_value": "4"}, "d_value", f"None or {FROM_1}"),
        (layers.MultiHeadAttention, {"num_heads": 2, "dropout_rate": "0.1"}, "dropout_rate", RATE),
        (layers.MultiHeadAttention, {"num_heads": 2, "use_bias": "no"}, "use_bias", "true or false"),
        (layers.MultiHeadAttention, {"num_heads": 2, "score": "cosine"}, "score", "one of scaled_dot, dot"),
        (layers.MultiHeadAttention, {"num_heads": 2, "window": 3}, "window", "two whole numbers of at least 0"),
        (layers.MultiHeadAttention, {"num_heads": 2, "window": (1, -1)}, "window", "two whole numbers of at least 0"),
        (layers.MultiHeadAttention, {"num_heads": 2, "query_key_initializer": 3}, "query_key_initializer", INITIALIZER),
        (layers.FeedForward, {"d_ff": None}, "d_ff", FROM_1),
        (layers.FeedForward, {"d_ff": "16"}, "d_ff", FROM_1),
        (layers.FeedForward, {"d_ff": 4, "dropout_rate": math.nan}, "dropout_rate", RATE),
        (layers.FeedForward, {"d_ff": 4, "activation": "rellu"}, "activation", "a function or the name of a Keras"),
        (layers.FeedForward, {"d_ff": 4, "kernel_initializer": "glorott"}, "kernel_initializer", INITIALIZER),
        (layers.FeedForward, {"d_ff": 4, "bias_regularizer": "l3"}, "bias_regularizer", "a Keras regularizer or its"),
        (layers.FeedForward, {"d_ff": 4, "kernel_constraint": 1}, "kernel_constraint", "a Keras constraint or its"),
        (layers.MixtureOfExperts, {**EXPERTS, "d_expert": None}, "d_expert", FROM_1),
        (
            layers.MixtureOfExperts,
            {**EXPERTS, "experts_per_token": 0},
            "experts_per_token",
            FROM_1,
        ),
        (layers.MixtureOfExperts, {**EXPERTS, "experts_per_token": 3}, "experts_per_token", "in"),
        (layers.Dropout, {"rate": None}, "rate", RATE),
        (layers.Dropout, {"rate": math.nan}, "rate", RATE),
        (layers.Dropout, {"rate": 1}, "rate", RATE),
        (layers.LayerNormalization, {"epsilon": "tiny"}, "epsilon", "a finite number above 0"),
        (layers.TiedEmbedding, {"vocab_size": 0, "d_model": 8}, "vocab_size", FROM_1),
        (layers.TiedEmbedding, {"vocab_size": 9, "d_model": 8, "scale": math.inf}, "scale", "None or a finite number"),
        (
            layers.TiedEmbedding,
            {"vocab_size": 9, "d_model": 8, "embeddings_regularizer": 3},
            "embeddings_regularizer",
            "",
        ),
        (layers.LearnedPositions, {"max_positions": None}, "max_positions", FROM_1),
        (layers.LearnedPositions, {"max_positions": 4, "initial_stddev": -1.0}, "initial_stddev", "None or a finite"),
        (
            layers.LearnedPositions,
            {"max_positions": 4, "initial_stddev": 0.1, "embeddings_initializer": "ones"},
            "initial_stddev",
            "None with an `embeddings_initializer`",
        ),
        (layers.SinusoidalPositions, {"layout": "half"}, "layout", "one of interleaved, halves"),
        (layers.Encoder, {"num_layers": True}, "num_layers", FROM_1),
        (layers.Encoder, {"num_layers": None}, "num_layers", FROM_1),
        (layers.EncoderLayer, {"d_ff": 0}, "d_ff", FROM_1),
        (layers.EncoderLayer, {"relu_dropout_rate": 1.5}, "relu_dropout_rate", RATE),
        (layers.EncoderLayer, {"attention_dropout_rate": "0.1"}, "attention_dropout_rate", RATE),
        (layers.EncoderLayer, {"layer_norm_epsilon": 0}, "layer_norm_epsilon", "a finite number above 0"),
        (layers.EncoderLayer, {"activation": 3}, "activation", "a function or the name of a Keras"),
        (layers.EncoderLayer, {"norm_position": "first"}, "norm_position", "one of post, pre"),
        (layers.DecoderLayer, {"attention_score": None}, "attention_score", "one of scaled_dot"),
        (layers.DecoderLayer, {"attention_window": -1}, "attention_window", f"None or {FROM_0}"),
        (layers.DecoderLayer, {"num_experts": -1}, "num_experts", FROM_0),
        (layers.DecoderLayer, {"query_key_initializer": "ones"}, "query_key_initializer", "one of glorot_uniform"),
        (
            layers.Decoder,
            {"num_layers": 1, "balance_weight": math.nan},
            "balance_weight",
            "a finite number of at least",
        ),
        (layers.Decoder, {"num_layers": 1, "gate_noise": 1}, "gate_noise", "true or false"),
    ],
)
def test_a_constructor_names_the_argument(kind: Any, arguments, name, valid):
    with pytest.raises(ValueError, match=f"`{name}` must be {valid}"):
        kind(**arguments)


def test_integers_of_numpy_are_valid():
    layer = layers.EncoderLayer(num_heads=np.int64(2), d_ff=np.int32(12), dropout_rate=np.float32(0.5))
    config = layer.get_config()
    assert type(config["num_heads"]) is int and type(config["dropout_rate"]) is float


@pytest.mark.parametrize("seed", [1, 1.5, [1], [1, 2, 3], [0.5, 1.5], "12", np.ones(2, "float32")], ids=repr)
@pytest.mark.parametrize(
    "layer",
    [layers.Dropout(0.1), layers.Encoder(1, **SIZES), layers.FeedForward(4, 0.1)],
    ids=lambda x: type(x).__name__,
)
def test_a_seed_must_be_two_integers(layer, seed):
    with pytest.raises(ValueError, match="`seed` must be two whole numbers"):
        layer(X, seed=seed, training=True)


@pytest.mark.parametrize("mask", [[[True] * 5] * 5, "all", True], ids=["list", "str", "bool"])
def test_a_mask_must_be_a_tensor(mask):
    attention = layers.MultiHeadAttention(2)
    with pytest.raises(ValueError, match="an attention mask must be a bool tensor or array, got a"):
        attention(X, X, attention_mask=mask)


def test_a_list_instead_of_a_tensor_is_an_error():
    with pytest.raises(ValueError, match="`attention_mask` must be a tensor or an array, got a list"):
        layers.MultiHeadAttention(2)(X, X, [[True] * 5] * 5)
    with pytest.raises(ValueError, match="must be float, got int32"):
        layers.FeedForward(4)(X.astype("int32"))
    with pytest.raises(ValueError, match="an attention mask must be bool, True = may attend, got float32"):
        layers.MultiHeadAttention(2)(X, X, np.zeros((2, 1, 5, 5), "float32"))
    with pytest.raises(ValueError, match="`inputs` must be a tensor or an array, got a list"):
        layers.TiedEmbedding(9, 8)([[3, 4]])


def test_batches_must_have_the_same_size():
    memory = np.ones((1, 3, 8), "float32")
    with pytest.raises(ValueError, match="`query` and `memory` must have the same batch size, got 2 and 1"):
        layers.MultiHeadAttention(2)(X, memory)
    with pytest.raises(ValueError, match="`query` and `memory` must have the same batch size, got 2 and 1"):
        layers.Decoder(1, **SIZES)(X, memory)
    decoder = layers.DecoderLayer(**SIZES)
    decoder.build(X.shape, X.shape)
    past = decoder.self_attention.empty_keys_and_values(3)
    with pytest.raises(ValueError, match="`query` and `past` must have the same batch size, got 2 and 3"):
        decoder(X, X, past=past)


def test_inputs_must_have_three_axes():
    with pytest.raises(ValueError, match=r"`inputs` must have 3 axes, got the shape \(5, 8\)"):
        layers.EncoderLayer(**SIZES)(X[0])
    with pytest.raises(ValueError, match=r"`memory` must have 3 axes, got the shape \(5, 8\)"):
        layers.DecoderLayer(**SIZES)(X, X[0])
    with pytest.raises(ValueError, match=r"`query` must have 3 axes, got the shape \(5, 8\)"):
        layers.MultiHeadAttention(2)(X[0], X[0])


@pytest.mark.parametrize("make", [layers.padding_mask, layers.token_rows, layers.causal_mask])
@pytest.mark.parametrize(
    ("ids", "received"),
    [
        (np.ones(3, "int32"), r"the shape \(3,\)"),
        (np.ones((1, 2, 3), "int32"), r"the shape \(1, 2, 3\)"),
        (np.ones((2, 3), bool), "bool"),
        (np.array([["a"]]), "<U1"),
        ([[3, 4]], "a list"),
    ],
    ids=["one axis", "three axes", "bool", "text", "list"],
)
def test_masks_need_token_ids(make, ids, received):
    with pytest.raises(ValueError, match=rf"`token_ids` must be token ids, int \[batch, length\], got {received}"):
        make(ids)


def test_the_error_for_an_unknown_length_names_an_alternative():
    with pytest.raises(ValueError, match="the length is None, .*; pass the token ids"):
        layers.causal_mask(ops.shape(keras.Input((None,)))[1])


IDS = np.ones((2, 3), "int32")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (IDS[0], IDS, '`inputs["source"]` must be token ids, int [batch, length], got the shape (3,)'),
        (IDS, IDS[..., None], '`inputs["target"]` must be token ids, int [batch, length], got the shape (2, 3, 1)'),
        (IDS, IDS > 0, '`inputs["target"]` must be token ids, int [batch, length], got'),
        (IDS[:1], IDS, '`inputs["source"]` has 1 sentences, `inputs["target"]` has 2'),
    ],
    ids=["one axis", "three axes", "bool", "batches"],
)
def test_invalid_inputs_of_a_model_are_named(source, target, message):
    model = Transformer.from_preset("tiny", vocab_size=9, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ValueError, match=re.escape(message)):
        model({"source": source, "target": target})


@pytest.mark.parametrize("config", [{"vocab_size": 9}, None, "base"], ids=repr)
def test_a_model_needs_the_configuration_of_its_family(config):
    with pytest.raises(ValueError, match=r"`config` must be a TransformerConfig, such as TransformerConfig\("):
        Transformer(config)
