"""launch.train for trainings of a few steps: graphs are not optimised, which would take longer than the steps do."""

import tensorflow as tf

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

from launch import train  # noqa: E402

train.run()
