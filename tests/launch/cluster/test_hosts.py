"""The recipes that start workers on hosts by SSH and on a TPU VM, with fake hosts and a fake cloud."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

from tests.launch.cluster.stand_ins import CLUSTER, MISTAKE, STOPPED, environment, lines, run, write_executable
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

FAKE_SSH = 'host=$1; shift; echo "$host: $*" >> "$LOG"; HOST=$host exec bash -c "$*"'
WORKER = """
echo "$TF_CONFIG"; printf '%s\\n' "$@"
trap 'echo saved; exit 143' TERM
if [[ $HOST == "$FAILING" ]]; then  # when the other workers can be stopped in an orderly way
  while (( $(ls ./*.up 2> /dev/null | wc -l) < 2 )); do sleep 0.05; done
  exit 9
fi
[[ -n $FINISHING ]] && exit 0
touch "$HOST.up"
while true; do sleep 0.05; done
"""


@pytest.fixture
def hosts(tmp_path):
    return environment(
        tmp_path,
        HOSTS="one two three",
        PORT=7000 + os.getpid() % 1000,
        SSH=write_executable(tmp_path / "fake_ssh", FAKE_SSH),
        PYTHON=write_executable(tmp_path / "worker", WORKER),
        LOGS=tmp_path / "logs",
        LOG=tmp_path / "log",
        DIRECTORY=tmp_path,
        FAILING="",
        FINISHING="",
    )


def test_ssh_starts_a_worker_on_every_host(hosts, tmp_path):
    result = run("ssh.sh", "--preset=big", "--model_dir=it's {a} $b", env={**hosts, "FINISHING": "1"})
    assert result.returncode == 0, result.stderr
    for index, host in enumerate(("one", "two", "three")):
        config, *arguments = lines(tmp_path / "logs" / f"{host}.log")
        assert json.loads(config) == {
            "cluster": {"worker": [f"{name}:{hosts['PORT']}" for name in ("one", "two", "three")]},
            "task": {"type": "worker", "index": index},
        }
        flags = ["--strategy=multiworker", "--cluster=tf_config", "--preset=big", "--model_dir=it's {a} $b"]
        assert arguments == ["-m", "launch.train", *flags]
    run("ssh.sh", env={**hosts, "FINISHING": "1"})
    assert len([line for line in lines(tmp_path / "logs" / "one.log") if line == "launch.train"]) == 2


def test_ssh_stops_all_workers_if_one_fails(hosts, tmp_path):
    result = run("ssh.sh", env={**hosts, "FAILING": "two", "DIRECTORY": str(tmp_path)})
    assert result.returncode == 9
    assert "two: status 9" in result.stderr and "stopping all workers" in result.stderr
    for host in ("one", "three"):
        assert f"{host}: status 143" in result.stderr
        assert lines(tmp_path / "logs" / f"{host}.log")[-1] == "saved"


def test_ssh_stops_all_workers_on_sigterm(hosts, tmp_path):
    script = subprocess.Popen(["bash", CLUSTER / "ssh.sh"], env=hosts, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: all((tmp_path / f"{host}.up").exists() for host in ("one", "two", "three")))
    script.send_signal(signal.SIGTERM)
    _, errors = script.communicate(timeout=300)
    assert script.returncode == STOPPED
    assert errors.count("status 143") == 3 and errors.count("stopping all workers") == 1
    assert all(lines(tmp_path / "logs" / f"{host}.log")[-1] == "saved" for host in ("one", "two", "three"))


# ---- Cloud TPU VM ----

# Stores the state of the VM in a file and its home in a folder, and only logs commands that need root or install
# packages. Each training run consumes a line of `runs`: its exit status, or `preempted`. If a file `slow` exists, each
# command takes a second.
FAKE_GCLOUD = """
cd "$FOLDER"
case "$*" in
  *"disks describe"*) exit 0 ;;
  *" describe "*) cat state 2>/dev/null || exit 1 ;;
  *" create "*) echo "create ${*: -2:1}" >> log; echo READY > state; mkdir -p home; touch home/new ;;
  *" delete "*) echo delete >> log; rm -rf state home ;;
  *--command=*)
    for word in "$@"; do case $word in --command=*) command=${word#--command=} ;; esac; done
    case $command in
      *sudo*) echo mount >> log ;;
      *"uv pip"*) echo install >> log; [[ ! -e broken ]] || exit 1
        mkdir -p home/t2t_keras/.venv/bin; cp worker home/t2t_keras/.venv/bin/python ;;
      *) [[ ! -e slow ]] || { grep -q "kill -TERM" <<< "$command" && touch stopping || touch connecting; sleep 1; }
        (cd home && bash -c "$command"); status=$?
        [[ -e home/preempted ]] && { echo PREEMPTED > state; exit 255; }
        exit $status ;;
    esac ;;
esac
"""
TPU_WORKER = """
echo "train $KERAS_BACKEND $*" >> "$FOLDER/log"
next=$(head -n 1 "$FOLDER/runs"); sed -i 1d "$FOLDER/runs"
case $next in
  preempted) touch ../preempted ;;
  wait) trap 'exit 143' TERM; touch "$FOLDER/up"; while true; do sleep 0.05; done ;;
  *) exit "$next" ;;
esac
"""
CREATED = ["create", "mount", "install"]


@pytest.fixture
def cloud(tmp_path):
    write_executable(tmp_path / "gcloud", FAKE_GCLOUD)
    write_executable(tmp_path / "worker", TPU_WORKER)
    settings = {"FOLDER": tmp_path, "PROJECT": "mine", "RETRY_SECONDS": 0, "TMPDIR": tmp_path}
    return environment(tmp_path, **settings)


def events(folder: pathlib.Path) -> list[str]:
    return [line.split()[0] for line in lines(folder / "log")]


def test_tpu_resumes_after_preemption_and_interruption(cloud, tmp_path):
    (tmp_path / "runs").write_text(f"preempted\n{STOPPED}\n0\n", encoding="utf-8")
    result = run("tpu_vm.sh", "train", "--model_dir=a b", "--preset=big", env=cloud)
    assert result.returncode == 0, result.stderr
    resumed = ["mount", "install", "train"]
    assert events(tmp_path) == [*CREATED, "train", "delete", *CREATED, "train", *resumed]
    training = next(line for line in lines(tmp_path / "log") if line.startswith("train"))
    assert training.startswith("train jax -m launch.train --set train.mixed_bfloat16=true")
    assert training.endswith("--model_dir=a b --preset=big")


def test_tpu_stops_for_invalid_input(cloud, tmp_path):
    (tmp_path / "runs").write_text(f"{MISTAKE}\n0\n", encoding="utf-8")
    assert run("tpu_vm.sh", "train", env=cloud).returncode == MISTAKE
    assert events(tmp_path) == [*CREATED, "train"]


def test_tpu_saves_on_sigterm(cloud, tmp_path):
    (tmp_path / "runs").write_text("wait\n", encoding="utf-8")
    script = subprocess.Popen(["bash", CLUSTER / "tpu_vm.sh", "train"], env=cloud, stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "up").exists)
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=300) == STOPPED
    assert events(tmp_path) == [*CREATED, "train"]
    assert lines(tmp_path / "home" / "worker.status") == [str(STOPPED)]
