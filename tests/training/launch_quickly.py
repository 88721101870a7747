"""launch.train for trainings of a few steps, in less time.

Also in a process that is no fork; and a folder of checkpoints is not expected to be another one a minute later.
"""

from launch import train
from t2t_keras.training import trainer
from tests import programs

programs.set_quick_mode(True)
trainer._SECONDS_BETWEEN_LOOKS = 0.1
train.run()
