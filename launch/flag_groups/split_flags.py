"""The flag that says whether texts are translated sentence by sentence; `launch.evaluate` has a different --split."""

from t2t_keras.config import DecodeConfig

from . import setting_flags

SETTINGS = setting_flags.define(DecodeConfig, "split")
