"""Turns parallel text into token ids on disk, and those into batches."""

from t2t_keras.data.sources import corpora

__all__ = ["corpora"]
