"""Reads and writes the model formats of other projects."""
