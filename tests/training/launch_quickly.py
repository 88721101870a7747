"""Runs launch.train with shorter delays, for trainings of a few steps.

Processes that are not forks start faster, and workers wait less for a changed directory of checkpoints.
"""

from launch import train
from t2t_keras.training import trainer
from tests import programs

programs.set_quick_mode(True)
trainer._SECONDS_BETWEEN_LOOKS = 0.1
train.run()
