"""Exports models as graphs that run without TensorFlow, with a program that translates with them."""
