"""Attention: scores, heads and masks."""
