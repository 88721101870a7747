"""Beam search, greedy search and sampling over a step function. They know a model only by its contract."""
