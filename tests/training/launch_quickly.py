"""launch.train for trainings of a few steps, in less time.

Graphs are not optimised, which would take longer than the steps do, and a folder of checkpoints is not expected to be
another one a minute later.
"""

import tensorflow as tf

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

from launch import train  # noqa: E402
from t2t_keras.training import trainer  # noqa: E402

trainer._SECONDS_BETWEEN_LOOKS = 0.1
train.run()
