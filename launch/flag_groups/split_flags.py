"""The flag that says whether texts are translated sentence by sentence; `launch.evaluate` has another --split."""

from absl import flags

from t2t_keras.config import DecodeConfig

from . import setting_flags

flags.disclaim_key_flags()  # they belong to the calling module

SETTINGS = setting_flags.define(DecodeConfig, "split")
