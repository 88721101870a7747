"""Operations that have faster versions for some backend.

`plain.py` defines them for all backends; the module named after the current backend overrides them.
"""

import keras

from t2t_keras.kernels.plain import *  # noqa: F403

if keras.backend.backend() == "tensorflow":
    from t2t_keras.kernels.tensorflow import *  # noqa: F403
