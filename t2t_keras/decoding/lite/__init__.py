"""The decoder's steps on TensorFlow Lite, whose XNNPACK kernels are the fastest that TensorFlow has for a CPU.

A step of a search is some hundred small operations. TensorFlow's executor spends more time on each than most of
them take, and its products read weights in the order in which they were trained. TensorFlow Lite plans a graph's
memory once, packs the weights once, and multiplies 8-bit weights with 8-bit activations where it is asked to. The
search itself, with all its options, stays the one TensorFlow graph that it is: a `LiteModel` only takes the place of
the model that it asks for the logits of each step. Greedy search alone, of which little is left then, is a loop in
NumPy.
"""

from t2t_keras.decoding.lite.model import LiteModel

__all__ = ["LiteModel"]
