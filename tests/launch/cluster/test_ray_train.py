"""The driver for Ray Train, with a fake Ray that starts its workers locally, and a fake training program."""

import json
import subprocess
import sys

import pytest

from tests.launch.cluster.stand_ins import CLUSTER, environment, lines, write_executable

pytestmark = pytest.mark.integration

# The parts of ray.train that the driver uses, with the documented names; other arguments are rejected.
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
        with open(os.environ["RECORD"], "w") as file:
            json.dump([dataclasses.asdict(self.scaling), dataclasses.asdict(self.run)], file)
        addresses = [f"host{index}:1000" for index in range(self.scaling.num_workers)]
        for index in range(self.scaling.num_workers):
            task = {"type": "worker", "index": index}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
            self.loop(self.config)
"""


@pytest.fixture
def run_driver(tmp_path):
    """Runs the driver. Its workers write their arguments to `worker_0`, ..., and exit with a status."""
    for name, text in (("train/__init__.py", RAY), ("train/tensorflow.py", TENSORFLOW), ("__init__.py", "")):
        path = tmp_path / "packages" / "ray" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess:
        worker = f"""index=${{TF_CONFIG##*index\\": }}
            printf "%s\\n" "$TF_CONFIG" "$KERAS_BACKEND" "$PWD" "$@" > {tmp_path}/worker_${{index%%\\}}*}}
            exit {status}"""
        python = write_executable(tmp_path / "python", worker)
        settings = {"PYTHONPATH": tmp_path / "packages", "RECORD": tmp_path / "record.json"}
        command = [sys.executable, str(CLUSTER / "ray_train.py"), f"--python={python}", f"--directory={tmp_path}"]
        env = environment(tmp_path, **settings)
        return subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, timeout=300)

    return run


def test_each_worker_has_a_separate_tf_config(tmp_path, run_driver):
    result = run_driver("--workers=2", "--gpus=4", "--cpus=8", "--restarts=3", "--", "--data_dir=a b", "--preset=big")
    assert result.returncode == 0, result.stderr
    for index in range(2):
        tf_config, backend, folder, *arguments = lines(tmp_path / f"worker_{index}")
        assert json.loads(tf_config)["task"] == {"type": "worker", "index": index}
        assert (backend, folder) == ("tensorflow", str(tmp_path))
        flags = ["--strategy=multiworker", "--cluster=tf_config", "--data_dir=a b", "--preset=big"]
        assert arguments == ["-m", "launch.train", *flags]
    scaling, run = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert scaling == {
        "num_workers": 2,
        "use_gpu": True,
        "resources_per_worker": {"CPU": 8, "GPU": 4},
        "placement_strategy": "STRICT_SPREAD",
    }
    assert run == {"name": "t2t", "failure_config": {"max_failures": 3}}


def test_training_receives_sigterm_when_ray_kills_its_worker(tmp_path):
    """Ray kills its worker, whose child process then receives SIGTERM."""
    python = write_executable(
        tmp_path / "python", "trap 'echo saved; exit 143' TERM; echo up; while true; do sleep 0.05; done"
    )
    config = {"python": str(python), "directory": str(tmp_path), "backend": "tensorflow", "flags": []}
    worker = f"import ray_train; ray_train.work({config!r})"
    with subprocess.Popen([sys.executable, "-c", worker], stdout=subprocess.PIPE, text=True, cwd=CLUSTER) as process:
        assert process.stdout.readline() == "up\n"
        process.kill()
        assert process.stdout.readline() == "saved\n"


@pytest.mark.parametrize("flag", ["--workers=0", "--gpus=-1", "--cpus=nan", "--restarts=1.5"])
def test_invalid_numbers_are_rejected(flag) -> None:
    command = [sys.executable, CLUSTER / "ray_train.py", "--dry_run", flag]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "must be a whole number of at least" in result.stderr
