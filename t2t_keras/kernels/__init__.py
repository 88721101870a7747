"""Operations that some backend computes faster: `plain.py` defines them, a file named after a backend replaces them."""

import keras

from t2t_keras.kernels import plain

if keras.backend.backend() == "tensorflow":
    from t2t_keras.kernels.tensorflow import (
        add,
        convolution,
        dropout,
        embedding_lookup,
        grouped_linear,
        layer_normalization,
        linear,
        lstm,
        normal,
        put_rows,
        reshape_like,
        scan,
        scores,
        shape,
        softmax,
        take_rows,
    )
else:
    add = plain.add
    convolution = plain.convolution
    dropout = plain.dropout
    embedding_lookup = plain.embedding_lookup
    grouped_linear = plain.grouped_linear
    layer_normalization = plain.layer_normalization
    linear = plain.linear
    lstm = plain.lstm
    normal = plain.normal
    put_rows = plain.put_rows
    reshape_like = plain.reshape_like
    scan = plain.scan
    scores = plain.scores
    shape = plain.shape
    softmax = plain.softmax
    take_rows = plain.take_rows

__all__ = [
    "add",
    "convolution",
    "dropout",
    "embedding_lookup",
    "grouped_linear",
    "layer_normalization",
    "linear",
    "lstm",
    "normal",
    "put_rows",
    "reshape_like",
    "scan",
    "scores",
    "shape",
    "softmax",
    "take_rows",
]
