"""What all tests share: quiet logs, set before anything imports TensorFlow."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
