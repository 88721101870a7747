"""The Transformer of "Attention Is All You Need" on TensorFlow and Keras 3."""
