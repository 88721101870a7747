"""The boxes of Figure 1 at one position of every hypothesis, beside a cache: what a search runs."""

from t2t_keras.layers.stepping.attention_step import CrossAttentionStep, KeysAndValues, SelfAttentionStep
from t2t_keras.layers.stepping.decoder_step import DecoderCache, DecoderLayerStep, DecoderStep, OwnEntries
from t2t_keras.layers.stepping.feed_forward_step import FeedForwardStep

__all__ = [
    "CrossAttentionStep",
    "DecoderCache",
    "DecoderLayerStep",
    "DecoderStep",
    "FeedForwardStep",
    "KeysAndValues",
    "OwnEntries",
    "SelfAttentionStep",
]
