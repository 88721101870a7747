"""Translates, scores and explains lines of text with trained models."""
