"""Converts parallel text to token ids on disk, and token ids to batches."""
