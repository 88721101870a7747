"""The decoder's steps on TensorFlow Lite, whose XNNPACK kernels are the fastest that TensorFlow has for a CPU.

A step of a search is some hundred small operations. TensorFlow's executor spends more time on each than most of
them take, and its products read weights in the order in which they were trained. TensorFlow Lite plans a graph's
memory once, packs the weights once, and multiplies 8-bit weights with 8-bit activations where it is asked to.

A search with options stays the TensorFlow graph that it is: a `LiteModel` only takes the place of the model that it
asks for the logits of each step. Searches without options, greedy and beam, are loops in NumPy here.
"""

from t2t_keras.lite.lite_engine import LiteEngine
from t2t_keras.lite.lite_model import LiteModel

__all__ = ["LiteEngine", "LiteModel"]
