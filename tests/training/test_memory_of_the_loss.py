"""The loss takes the memory of a chunk of logits, for any number of tokens."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]
VOCAB = 16000

# A separate process, so that its peak does not include other tests.
MEASURE = """
import sys
import tensorflow as tf
from t2t_keras.losses import loss_sum_and_count
from t2t_keras.training.fused_loss import ChunkedLoss
from t2t_keras.training.updates import Head

kind, tokens, vocab_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def plain(states, table, targets):
    with tf.GradientTape() as tape:
        tape.watch([states, table])
        loss, _ = loss_sum_and_count(targets, tf.matmul(states, table, transpose_b=True), 0.1)
    return loss, *tape.gradient(loss, [states, table])

def fused(states, table, targets):
    return tuple(ChunkedLoss(Head(table), 0.1, states.dtype, True)(states, targets, 1.0, kind == "skip_padding"))

def peak():  # in KiB, of this program only: getrusage includes the parent process
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

states = tf.random.normal([8, tokens // 8, 64])
table = tf.random.normal([vocab_size, 64])
targets = tf.random.uniform([8, tokens // 8], 1, vocab_size, tf.int32)
function = tf.function(plain if kind == "plain" else fused).get_concrete_function(
    tf.TensorSpec([8, None, 64]), table, tf.TensorSpec([8, None], tf.int32)
)
function(states[:, :1], table, targets[:, :1])  # memory that only the first run takes
before = peak()
function(states, table, targets)
print(peak() - before)
"""


def peak(kind: str, tokens: int) -> float:
    """Returns the peak memory of loss and gradients as a share of float32 logits, [tokens, vocab]."""
    command = [sys.executable, "-c", MEASURE, kind, str(tokens), str(VOCAB)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) * 1024 / (4 * tokens * VOCAB)


@pytest.mark.parametrize("kind", ["skip_padding", pytest.param("static_shapes", marks=pytest.mark.slow)])
def test_the_fused_loss_never_holds_the_logits(kind):
    """All logits would take 1 GB."""
    assert peak(kind, 16384) < 0.3  # All logits would be 1.
