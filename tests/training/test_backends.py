"""The devices of a training; `on_jax` has the tests of the other backend."""

from types import SimpleNamespace

import tensorflow as tf

from t2t_keras.training.backends import devices_line


def devices(count: int, kind: str) -> SimpleNamespace:
    """Returns the parts of a strategy that the function reads."""
    names = [f"/job:localhost/replica:0/task:0/device:{kind}:{number}" for number in range(count)]
    return SimpleNamespace(num_replicas_in_sync=count, extended=SimpleNamespace(worker_devices=names))


def test_devices_other_than_a_single_processor_are_reported(monkeypatch):
    assert devices_line(tf.distribute.OneDeviceStrategy("/cpu:0")) == "1 replica on CPU"
    assert devices_line(devices(8, "CPU")) == "8 replicas on CPU"
    assert devices_line(devices(1, "TPU")) == "1 replica on TPU"
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"a {gpu}"})
    assert devices_line(devices(2, "GPU")) == "2 replicas on GPU (a GPU)"
