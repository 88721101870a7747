"""A training on many logical devices, uninterrupted and killed; a program of its own, since devices come first.

Usage: python resumed_on_replicas.py DATA_DIR OUTPUT_DIR REPLICAS. Leaves the runs OUTPUT_DIR/uninterrupted and
OUTPUT_DIR/killed, the latter as if killed when step 4 was made but not saved, and started again.
"""

import pathlib
import shutil
import sys

import tensorflow as tf

from t2t_keras.data.prepare import PreparedData
from tests.training.tiny_training import train

SETTINGS = {"model": {"dropout_rate": 0.3, "use_attention_bias": False}, "max_steps": 4, "checkpoint_steps": 2}


def main(data_dir: str, output_dir: str, replicas: str) -> None:
    # A third of this program's time would go into optimising graphs that run four times.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    data, settings = PreparedData.open(data_dir), {**SETTINGS, "replicas": int(replicas)}
    uninterrupted, killed = pathlib.Path(output_dir) / "uninterrupted", pathlib.Path(output_dir) / "killed"
    assert train(uninterrupted, data, **settings).step == 4
    shutil.copytree(uninterrupted, killed)
    shutil.rmtree(killed / "checkpoints" / "step_00000004")
    assert train(killed, data, **settings).step == 4


if __name__ == "__main__":
    main(*sys.argv[1:])
