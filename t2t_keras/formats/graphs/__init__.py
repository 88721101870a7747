"""Models as graphs that run without TensorFlow, and a program that translates with them."""
