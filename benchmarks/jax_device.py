"""Compares the training of every family on an accelerator and on the processor, with Keras on JAX.

    python -m benchmarks.jax_device

Both devices belong to this process: the first device that JAX finds, and the processor of the host. The batches are
padded random tokens, and dropout, label smoothing and clipping are as in training; dropout drops the same elements on
both devices. Models have one encoder and one decoder layer if that is a setting, because XLA takes long to compile each
layer. The products on the device have three precisions: full float32 (`highest`), JAX's default for float32 (`default`;
TF32 on NVIDIA GPUs), and `train.mixed_bfloat16`. The column `again` has the difference between the weights of two equal
trainings with `highest`; 0 means equal bits. The program does not need TensorFlow.
"""

import argparse
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
import jax
import keras
import numpy as np

from benchmarks.turns import number
from t2t_keras.config import ModelConfig, TrainConfig
from t2t_keras.models import families, presets
from t2t_keras.training.on_jax.jax_devices import JaxDevices
from t2t_keras.training.on_jax.jax_step import JaxStep

PRESETS = ("tiny", "rnn_tiny", "conv_tiny", "bytenet_tiny", "moe_tiny")
VOCAB, ROWS, LENGTH = 1000, 64, 24
TRAIN: dict[str, Any] = {"label_smoothing": 0.1, "clip_norm": 1.0, "static_shapes": True, "warmup_steps": 400}


def batches() -> Iterator[dict[str, np.ndarray]]:
    """Returns random batches of sentences of different lengths, int32 [ROWS, LENGTH] per side; equal in every call."""
    random = np.random.default_rng(1)
    while True:
        lengths = random.integers(3, LENGTH + 1, (ROWS, 1))
        ids = random.integers(3, VOCAB, (2, ROWS, LENGTH)) * (np.arange(LENGTH) < lengths)
        yield dict(zip(("source", "target"), ids.astype(np.int32), strict=True))


def trained(
    config: ModelConfig, device: Any, steps: int, precision: str, times: int = 1
) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Trains equal new models, and returns the losses of the first, float32 [steps], and the weights of each."""
    keras.utils.set_random_seed(1)
    with jax.default_matmul_precision("highest" if precision == "highest" else "default"):
        with jax.default_device(jax.devices("cpu")[0]):
            model = families.make_model(config, "mixed_bfloat16" if precision == "bfloat16" else "float32")
        step = JaxStep(model, TrainConfig(**TRAIN), JaxDevices([device]))
        start, ends = step.read(), []
        for _ in range(times):
            step.write(start, 0)
            losses = step.run(batches(), steps).loss
            ends.append(step.read()["weights"])
    return losses, ends


def main() -> None:
    """Prints a row for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=number(), default=20)
    parser.add_argument("--presets", default=",".join(PRESETS), help="presets, separated by commas")
    flags = parser.parse_args()
    device, processor = jax.devices()[0], jax.devices("cpu")[0]
    print(f"{device.device_kind}; JAX {jax.__version__}, Keras {keras.__version__}; {flags.steps} steps\n")
    print("Largest relative difference of a step's loss from the processor's, and largest difference of a weight\n")
    print("| preset | first loss | last loss | highest | default | bfloat16 | again |")
    print("|---|---|---|---|---|---|---|")
    for name in flags.presets.split(","):
        config = presets.preset(name).model
        layers = {field: 1 for field in ("num_encoder_layers", "num_decoder_layers") if hasattr(config, field)}
        config = dataclasses.replace(config, vocab_size=VOCAB, **layers)
        expected, _ = trained(config, processor, flags.steps, "highest")
        highest, (once, again) = trained(config, device, flags.steps, "highest", times=2)
        found = [highest, *(trained(config, device, flags.steps, each)[0] for each in ("default", "bfloat16"))]
        errors = [float(np.max(np.abs(losses / expected - 1.0))) for losses in found]
        errors.append(max(float(np.max(np.abs(weight - again[name]))) for name, weight in once.items()))
        numbers = " | ".join(f"{error:.1e}" for error in errors)
        print(f"| {name} | {expected[0]:.4f} | {expected[-1]:.4f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
