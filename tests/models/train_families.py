"""Trains families for 20 steps from given weights, on the backend that KERAS_BACKEND names.

    python train_families.py WEIGHTS.npz RESULTS.npz

WEIGHTS.npz has a family's weights, in Keras's order, as FAMILY/NUMBER; without it they are drawn and written there.
RESULTS.npz gets the losses of each family, and its weights after the last step.
"""

import os
import sys
from pathlib import Path

import keras
import numpy as np
from tiny_families import TINY, tiny_family

from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models import families

STEPS = 20
# All but that with experts, whose losses differ between backends by up to 1 %.
FAMILIES = [family for family in TINY if family != "moe_rnn"]


def batch() -> dict[str, np.ndarray]:
    """Padded pairs in which ids occur more than once."""
    rng = np.random.default_rng(3)
    lengths = {"source": [5, 3, 4, 2], "target": [3, 5, 2, 4]}
    pairs = {}
    for side, counts in lengths.items():
        ids = rng.integers(3, 9, (4, 6)) * (np.arange(6) < np.array(counts)[:, None])
        ids[np.arange(4), counts] = 1
        pairs[side] = ids.astype("int32")
    return pairs


def train(family: str, weights: list[np.ndarray] | None) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    """The weights before, the loss of each step, and the weights after; without dropout, embeddings untied."""
    model = families.make_model(tiny_family(family, dropout_rate=0.0, tie_embeddings=False))
    if weights is not None:
        model.set_weights(weights)
    before = model.get_weights()
    # What takes the least time: to compile on JAX, and nowhere else.
    is_jax = keras.backend.backend() == "jax"
    how = {"jit_compile": True} if is_jax else {"jit_compile": False, "run_eagerly": True}
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.1), **how)
    inputs = batch()
    history = model.fit(inputs, inputs["target"], batch_size=4, epochs=STEPS, verbose=0, shuffle=False).history
    return before, np.array(history["loss"]), model.get_weights()


def main(weights_path: Path, results_path: Path) -> None:
    keras.utils.set_random_seed(1)
    given = dict(np.load(weights_path)) if weights_path.exists() else {}
    begun, results = {}, {}
    for family in FAMILIES:
        numbered = [given[name] for name in sorted(given) if name.rpartition("/")[0] == family]
        before, losses, after = train(family, numbered or None)
        begun |= {f"{family}/{number:03d}": array for number, array in enumerate(before)}
        results |= {f"{family}/loss": losses}
        results |= {f"{family}/{number:03d}": array for number, array in enumerate(after)}
    if not given:
        np.savez(weights_path, **begun)
    np.savez(results_path, **results)


if __name__ == "__main__":
    assert os.environ["KERAS_BACKEND"] == keras.backend.backend()
    main(*map(Path, sys.argv[1:]))
