"""Beam search, greedy search and sampling over a step function; they know models only by their contract."""
