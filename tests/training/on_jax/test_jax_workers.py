"""Processes that do not meet, and errors that other processes do not cause."""

import subprocess
import sys
import threading
from unittest import mock

import pytest
import tensorflow as tf

from t2t_keras.training.devices.cluster import Cluster, WorkerLostError
from t2t_keras.training.on_jax import jax_workers
from t2t_keras.training.on_jax.jax_workers import JaxWorkers
from tests.training.worker_processes import free_ports
from tests.waiting import wait_until

jax = pytest.importorskip("jax")

# Exits like the programs, while JAX is still waiting.
ALONE = """
import sys
from t2t_keras.training.devices.cluster import Cluster, WorkerLostError
from t2t_keras.training.on_jax import jax_workers
jax_workers.PATIENCE, jax_workers.SILENCE = 2, 0.5
try:
    jax_workers._meet(Cluster(tuple(sys.argv[2:]), int(sys.argv[1])))
except WorkerLostError as error:
    print(error)
    sys.exit(75)
"""


@pytest.mark.integration
@pytest.mark.parametrize("index", [0, 1])
def test_a_single_process_ends_with_an_error(index):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    command = [sys.executable, "-c", ALONE, str(index), *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stderr[-3000:]
    assert f"worker {index} waits for all 2 at {addresses[0]}\n" in done.stderr
    assert f"worker {index} did not meet all 2 at {addresses[0]} in 0 minutes\n" == done.stdout


def test_errors_of_joining_are_raised(monkeypatch):
    def fail(*arguments, **settings):
        assert threading.current_thread() is not threading.main_thread()
        raise RuntimeError("must be called before any JAX calls")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(RuntimeError, match="before any JAX calls"):
        jax_workers._meet(Cluster(("a:1", "b:2"), 0))


def test_tensorflow_may_have_started_before(monkeypatch):
    def fail(*arguments):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", fail)
    assert jax_workers.make_jax_devices().num_replicas_in_sync == len(jax.devices())


def test_a_process_waits_even_if_its_output_is_closed(monkeypatch):
    errors = mock.Mock(write=mock.Mock(side_effect=BrokenPipeError))
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *arguments, **settings: wait_until(lambda: errors.write.called)
    )
    monkeypatch.setattr(jax_workers, "SILENCE", 0)
    monkeypatch.setattr(sys, "stderr", errors)
    jax_workers._meet(Cluster(("a:1", "b:2"), 0))
    errors.write.assert_called_once()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("UNIMPLEMENTED: no such operation on this device", jax.errors.JaxRuntimeError),
        ("INVALID_ARGUMENT: shapes differ", jax.errors.JaxRuntimeError),
        ("RESOURCE_EXHAUSTED: out of memory", jax.errors.JaxRuntimeError),
        ("UNAVAILABLE: Gloo all-reduce failed: connection closed by peer", WorkerLostError),
    ],
)
def test_only_errors_that_other_processes_can_cause_are_lost_workers(message, kind):
    workers = object.__new__(JaxWorkers)
    workers.count, workers.index = 2, 0
    with pytest.raises(kind, match=message.partition(":")[2]), workers.raising_worker_lost():
        raise jax.errors.JaxRuntimeError(message)
