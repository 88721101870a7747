"""Spans of text that a model does not translate: finds them, removes them, and puts them back."""
