"""Turns parallel text into token ids on disk, and those into batches."""
