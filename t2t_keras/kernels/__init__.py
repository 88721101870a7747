"""Operations that some backend computes faster: `plain.py` defines them, a file named after a backend replaces them."""

import keras

from t2t_keras.kernels.plain import *  # noqa: F403

if keras.backend.backend() == "tensorflow":
    from t2t_keras.kernels.tensorflow import *  # noqa: F403
