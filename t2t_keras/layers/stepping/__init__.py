"""The boxes of Figure 1 for one step of a search: one position of every hypothesis, with a cache of the past."""

from t2t_keras.layers.stepping.attention_step import CrossAttentionStep, KeysAndValues, SelfAttentionStep
from t2t_keras.layers.stepping.decoder_step import (
    DecoderCache,
    DecoderLayerStep,
    DecoderStep,
    FeedForwardStep,
    MixtureStep,
    OwnEntries,
)

__all__ = [
    "CrossAttentionStep",
    "DecoderCache",
    "DecoderLayerStep",
    "DecoderStep",
    "FeedForwardStep",
    "KeysAndValues",
    "MixtureStep",
    "OwnEntries",
    "SelfAttentionStep",
]
