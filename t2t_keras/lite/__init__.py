"""The decoder's steps on TensorFlow Lite, whose XNNPACK kernels are the fastest that TensorFlow has for a CPU.

A search step is about a hundred small operations, and TensorFlow's executor spends more time on each than most of them
take. TensorFlow Lite plans memory and packs weights once, and can multiply 8-bit weights with 8-bit activations.

Searches without options, greedy and beam, are loops in NumPy. Searches with options remain TensorFlow graphs, in which
a `LiteModel` provides the logits of each step.
"""

from t2t_keras.lite.lite_engine import LiteEngine
from t2t_keras.lite.lite_model import LiteModel

__all__ = ["LiteEngine", "LiteModel"]
