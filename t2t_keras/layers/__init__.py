"""The paper's layers, usable in any Keras model on any Keras backend."""

from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.layers.attention.masks import causal_mask, padding_mask, token_rows, window_mask
from t2t_keras.layers.attention.multi_head import MultiHeadAttention
from t2t_keras.layers.attention.scores import additive_attention, scaled_dot_product_attention
from t2t_keras.layers.decoder import Decoder, DecoderLayer
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import TiedEmbedding
from t2t_keras.layers.encoder import Encoder, EncoderLayer
from t2t_keras.layers.experts import MixtureOfExperts
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.position import LearnedPositions, SinusoidalPositions

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerNormalization",
    "LayerSettings",
    "LearnedPositions",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "SinusoidalPositions",
    "TiedEmbedding",
    "additive_attention",
    "causal_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "token_rows",
    "window_mask",
]
