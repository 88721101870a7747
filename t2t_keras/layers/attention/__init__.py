"""Attention: its scores, its heads, its masks."""
