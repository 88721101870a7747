"""The driver for Ray Train, with a stand-in for Ray that starts its workers here, and one for the training."""

import json
import subprocess
import sys

import pytest

from tests.launch.cluster.stand_ins import CLUSTER, LOST, environment, executable, lines

pytestmark = pytest.mark.integration

# What the driver uses of ray.train, by the names of Ray's documents; any other argument is refused.
RAY = """
import dataclasses, json, os

@dataclasses.dataclass
class FailureConfig:
    max_failures: int = 0

@dataclasses.dataclass
class RunConfig:
    name: str
    failure_config: FailureConfig

@dataclasses.dataclass
class ScalingConfig:
    num_workers: int
    use_gpu: bool
    resources_per_worker: dict
    placement_strategy: str
"""
TENSORFLOW = """
import dataclasses, json, os

class TensorflowTrainer:
    def __init__(self, train_loop_per_worker, *, train_loop_config, scaling_config, run_config):
        self.loop, self.config = train_loop_per_worker, train_loop_config
        self.scaling, self.run = scaling_config, run_config

    def fit(self):
        with open(os.environ["ASKED"], "w") as file:
            json.dump([dataclasses.asdict(self.scaling), dataclasses.asdict(self.run)], file)
        addresses = [f"host{index}:1000" for index in range(self.scaling.num_workers)]
        for index in range(self.scaling.num_workers):
            task = {"type": "worker", "index": index}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
            self.loop(self.config)
"""


@pytest.fixture
def drive(tmp_path):
    """A function that runs the driver, whose workers write what they got to `worker_0`, ... and end with a status."""
    for name, text in (("train/__init__.py", RAY), ("train/tensorflow.py", TENSORFLOW), ("__init__.py", "")):
        path = tmp_path / "packages" / "ray" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess:
        worker = f"""index=${{TF_CONFIG##*index\\": }}
            printf "%s\\n" "$TF_CONFIG" "$KERAS_BACKEND" "$PWD" "$@" > {tmp_path}/worker_${{index%%\\}}*}}
            exit {status}"""
        python = executable(tmp_path / "python", worker)
        settings = {"PYTHONPATH": tmp_path / "packages", "ASKED": tmp_path / "asked"}
        command = [sys.executable, str(CLUSTER / "ray_train.py"), f"--python={python}", f"--directory={tmp_path}"]
        env = environment(tmp_path, **settings)
        return subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, timeout=300)

    return run


def test_each_worker_trains_with_its_own_tf_config(tmp_path, drive):
    done = drive("--workers=2", "--gpus=4", "--cpus=8", "--restarts=3", "--", "--data_dir=a b", "--preset=big")
    assert done.returncode == 0, done.stderr
    for index in range(2):
        tf_config, backend, folder, *arguments = lines(tmp_path / f"worker_{index}")
        assert json.loads(tf_config)["task"] == {"type": "worker", "index": index}
        assert (backend, folder) == ("tensorflow", str(tmp_path))
        flags = ["--strategy=multiworker", "--cluster=tf_config", "--data_dir=a b", "--preset=big"]
        assert arguments == ["-m", "launch.train", *flags]
    scaling, run = json.loads((tmp_path / "asked").read_text(encoding="utf-8"))
    assert scaling == {
        "num_workers": 2,
        "use_gpu": True,
        "resources_per_worker": {"CPU": 8, "GPU": 4},
        "placement_strategy": "STRICT_SPREAD",
    }
    assert run == {"name": "t2t", "failure_config": {"max_failures": 3}}


def test_jax_and_processors(tmp_path, drive):
    assert drive("--workers=1", "--gpus=0", "--backend=jax", "--", "--preset=big").returncode == 0
    _, backend, _, *arguments = lines(tmp_path / "worker_0")
    assert backend == "jax"
    flags = ["--cluster=tf_config", "--preset=big"]
    assert arguments == ["-m", "launch.train", *flags]
    scaling, _ = json.loads((tmp_path / "asked").read_text(encoding="utf-8"))
    assert scaling["use_gpu"] is False and "GPU" not in scaling["resources_per_worker"]


def test_ray_is_told_of_a_worker_that_ends_otherwise(drive):
    done = drive("--workers=1", "--", status=LOST)
    assert done.returncode and f"launch.train ended with status {LOST}" in done.stderr


def test_a_training_is_told_to_stop_when_ray_ends_its_worker(tmp_path):
    """Ray kills; the training, which is a process of its own, gets SIGTERM."""
    python = executable(
        tmp_path / "python", "trap 'echo saved; exit 143' TERM; echo up; while true; do sleep 0.05; done"
    )
    config = {"python": str(python), "directory": str(tmp_path), "backend": "tensorflow", "flags": []}
    worker = f"import ray_train; ray_train.work({config!r})"
    with subprocess.Popen([sys.executable, "-c", worker], stdout=subprocess.PIPE, text=True, cwd=CLUSTER) as process:
        assert process.stdout.readline() == "up\n"
        process.kill()
        assert process.stdout.readline() == "saved\n"


def test_a_missing_ray_is_named(tmp_path) -> None:
    hidden = {"PYTHONPATH": str(executable(tmp_path / "ray.py", "raise ModuleNotFoundError(name='ray')").parent)}
    command = [sys.executable, str(CLUSTER / "ray_train.py"), "--", "--model_dir=run"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path) | hidden, check=False)
    assert done.returncode == 1 and done.stderr == "error: the package ray is missing: pip install 'ray[train]'\n"


@pytest.mark.parametrize("flag", ["--workers=0", "--gpus=-1", "--cpus=nan", "--restarts=1.5"])
def test_a_number_that_makes_no_sense_is_refused(flag) -> None:
    command = [sys.executable, CLUSTER / "ray_train.py", "--dry_run", flag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "must be a whole number of at least" in done.stderr
