"""Converts parallel text to token ids on disk, and token ids to batches."""

from t2t_keras.data.sources import corpora

__all__ = ["corpora"]
