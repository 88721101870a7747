"""The strategy for a name and an environment."""

import json
import signal

import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.machine import streams
from t2t_keras.training.devices.cluster import STRATEGIES, WorkerLostError
from t2t_keras.training.devices.strategy import make_strategy, num_streams
from tests import programs


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    for name in ("TF_CONFIG", "SLURM_PROCID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_gpus(monkeypatch):
    plain = tf.config.list_physical_devices
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [] if kind == "GPU" else plain(kind))
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [])


@pytest.fixture
def two_gpus(monkeypatch):
    """Fakes two GPUs, and records the devices of a MirroredStrategy."""

    class Device:
        def __init__(self, index: int) -> None:
            self.name = f"/device:GPU:{index}"

    gpus = [Device(0), Device(1)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: gpus)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices: devices)


def workers_in_environment(monkeypatch, count: int) -> None:
    monkeypatch.setattr("t2t_keras.training.devices.strategy.wait_for_all", lambda cluster: None)
    cluster = {"worker": [f"host{i}:2222" for i in range(count)]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))


@pytest.mark.parametrize("replicas", [0, 1])
@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_one_cpu(no_gpus, name, replicas):
    strategy = make_strategy(name, replicas)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert strategy.num_replicas_in_sync == 1


def test_one_cpu_has_two_streams_with_half_of_the_cores_each(monkeypatch, no_gpus):
    calls = []
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", calls.append)
    for cores in (1, 2, 9):
        monkeypatch.setattr(streams, "num_cores", lambda cores=cores: cores)
        assert num_streams(make_strategy("cpu")) == 2
    assert calls == [1, 1, 4]
    assert num_streams(tf.distribute.MirroredStrategy(["/cpu:0"])) == 1


@pytest.mark.parametrize("name", ["auto", "mirrored"])
def test_all_gpus_or_the_first(two_gpus, name):
    assert make_strategy(name) == ["/device:GPU:0", "/device:GPU:1"]
    assert make_strategy(name, 1) == ["/device:GPU:0"]
    with pytest.raises(InputError, match="--replicas=3, but there are 2 GPUs"):
        make_strategy(name, 3)


@pytest.mark.parametrize("name", ["auto", "cpu", "mirrored"])
def test_many_replicas_on_a_machine_without_a_gpu(name):
    """Runs a separate process, in which TensorFlow has not been used before, with the real lists of devices."""
    code = (
        "from t2t_keras.training.devices.strategy import make_strategy; import tensorflow as tf; "
        "has_gpu = tf.config.list_physical_devices('GPU'); "
        f"print('replicas', 0 if has_gpu else make_strategy({name!r}, 3).num_replicas_in_sync)"
    )
    done = programs.run(["-c", code], capture_output=True, text=True, check=True)
    if "replicas 0" in done.stdout:
        pytest.skip("there is a GPU")
    assert "replicas 3" in done.stdout


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("tpu", {"replicas": 2}, "--replicas=2 is for CPUs and GPUs"),
        ("cpu", {"replicas": -1}, "--replicas must not be negative, got -1"),
        ("mirrored", {}, "--strategy=mirrored found no GPU.*--replicas=N"),
        ("multiworker", {}, "found no cluster: no TF_CONFIG, SLURM step"),
        ("mirrored", {"cluster": "tf_config"}, "--cluster=tf_config names workers, but --strategy=mirrored has no"),
    ],
)
def test_devices_that_cannot_be(no_gpus, name, settings, message):
    with pytest.raises(InputError, match=message):
        make_strategy(name, **settings)


def test_workers_that_do_not_meet(monkeypatch, no_gpus):
    def fail(resolver):
        raise tf.errors.DeadlineExceededError(None, None, "waited too long\nand a trace")

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", fail)
    workers_in_environment(monkeypatch, 2)
    with pytest.raises(WorkerLostError, match=r"^worker 0 did not meet the others .host0:2222, host1:2222.: .* long$"):
        make_strategy()


def test_a_cpu_takes_nothing_of_a_gpu(monkeypatch):
    visible = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *arguments: visible.append(arguments))
    make_strategy("cpu")
    assert visible == [([], "GPU")]
    make_strategy("auto")
    assert len(visible) == 1


def test_workers_of_the_environment(monkeypatch, no_gpus):
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda resolver: resolver)
    workers_in_environment(monkeypatch, 2)
    for resolver in (make_strategy(), make_strategy("multiworker", cluster="tf_config")):
        assert resolver.cluster_spec().as_dict() == {"worker": ["host0:2222", "host1:2222"]}
        assert (resolver.task_type, resolver.task_id, resolver.num_accelerators()) == ("worker", 0, {"GPU": 0})
    with pytest.raises(InputError, match="--replicas=2, but this worker has no GPUs"):
        make_strategy("multiworker", 2)
    assert isinstance(make_strategy("cpu"), tf.distribute.OneDeviceStrategy)
    workers_in_environment(monkeypatch, 1)
    for name in ("auto", "multiworker"):
        assert isinstance(make_strategy(name), tf.distribute.OneDeviceStrategy)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, None], ids=["python", "other_language"])
def test_the_handler_of_sigterm_is_that_from_before(monkeypatch, no_gpus, handler):
    """Python cannot restore a handler that it did not install, so that the default is set."""
    real, replaced, before = signal.signal, [], signal.getsignal(signal.SIGTERM)

    def set_handler(number, new):
        real(number, new)
        replaced.append(new)

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda resolver: resolver)
    workers_in_environment(monkeypatch, 2)
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    monkeypatch.setattr(signal, "signal", set_handler)
    try:
        make_strategy("multiworker")
    finally:
        real(signal.SIGTERM, before)
    assert replaced == [handler or signal.SIG_DFL]


def test_each_worker_with_its_gpus(monkeypatch, two_gpus):
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda resolver: resolver)
    workers_in_environment(monkeypatch, 2)
    assert make_strategy().num_accelerators() == {"GPU": 2}
    assert make_strategy(replicas=1).num_accelerators() == {"GPU": 1}
    with pytest.raises(InputError, match="--replicas=3, but this worker has 2 GPUs"):
        make_strategy(replicas=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "--strategy=tpu needs TPU_NAME in the environment"),
        ("mine", "TPU_NAME=mine: no TPU can be reached: no such"),
    ],
)
def test_a_tpu_that_is_not_there(monkeypatch, name, message):
    def fail(name):
        raise OSError("no such host\nand a trace")

    monkeypatch.setenv("TPU_NAME", name)
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", fail)
    with pytest.raises(InputError, match=message) as error:
        make_strategy("tpu")
    assert "\n" not in str(error.value)


def test_every_name_is_handled(monkeypatch, two_gpus):
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda resolver: "workers")
    calls = []
    monkeypatch.setenv("TPU_NAME", "mine")
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda name: f"resolver of {name}")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", calls.append)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", calls.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: f"strategy of {resolver}")
    workers_in_environment(monkeypatch, 2)
    assert make_strategy() == "strategy of resolver of mine", "it must be found before the workers"
    assert calls == ["resolver of mine", "resolver of mine"]
    assert len({str(make_strategy(name)) for name in STRATEGIES if name != "auto"}) == 4
