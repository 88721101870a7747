"""Converts text to token ids and back."""
