"""The recipes as scripts, with fake programs for the cluster and for training."""

import os
import re
import shutil
import signal
import subprocess
import tomllib

import pytest
import yaml

from tests.launch.cluster.stand_ins import (
    AWAY,
    CLUSTER,
    KILLED,
    LOST,
    MISTAKE,
    ROOT,
    STOPPED,
    environment,
    lines,
    run,
    write_executable,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SCRIPTS = sorted(path.name for path in CLUSTER.glob("*.sh"))


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_pass_shellcheck(script):
    result = subprocess.run(["shellcheck", "-x", CLUSTER / script], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_the_image_contains_the_files_of_the_installation():
    text = (CLUSTER / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"setup.py", "pyproject.toml", "README.md", "t2t_keras", "launch"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    (extras,) = re.findall(r"pip install --no-cache-dir '\.\[(.+)\]'", text)
    assert {"gpu", "serve", "remote"} == set(extras.split(",")) <= set(project()["optional-dependencies"])


def test_the_image_does_not_run_as_root():
    instructions = (CLUSTER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in instructions if line.startswith("USER ")]
    assert users and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert not [line for line in instructions[instructions.index(f"USER {users[-1]}") :] if line.startswith("RUN")]
    manifests = run("kubernetes.sh", "--model_dir=/t2t/runs", env={**os.environ, "DRY_RUN": "1", "RUN_AS": "1234"})
    (job,) = [document for document in yaml.safe_load_all(manifests.stdout) if document["kind"] == "Job"]
    context = job["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsNonRoot"] and {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {1234}


# ---- SLURM ----


@pytest.mark.parametrize(
    ("status", "restarts", "is_requeued"),
    [
        *((status, 0, False) for status in (0, MISTAKE, KILLED)),
        *((STOPPED, 0, True), (LOST, 2, True), (AWAY, 0, True), (STOPPED, 3, False)),
    ],
)
def test_slurm_requeues_only_interrupted_jobs(tmp_path, status, restarts, is_requeued):
    write_executable(tmp_path / "srun", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
    write_executable(tmp_path / "scontrol", f'echo "$@" >> {tmp_path}/scontrol.log')
    python = write_executable(tmp_path / "python", f'printf "%s\\n" "$@" > {tmp_path}/arguments; exit {status}')
    settings = {"PYTHON": python, "SLURM_JOB_ID": 17, "SLURM_RESTART_COUNT": restarts, "RESTARTS": 3}
    result = run("slurm.sh", "--model_dir=a b", env=environment(tmp_path, **settings))
    assert result.returncode == status
    assert lines(tmp_path / "scontrol.log") == (["requeue 17"] if is_requeued else [])
    flags = ["--strategy=multiworker", "--cluster=slurm", "--model_dir=a b"]
    assert lines(tmp_path / "arguments") == ["-m", "launch.train", *flags]


# Like srun, starts the command once per worker, in parallel, and returns the highest status.
FAKE_SRUN = """
while [[ $1 == -* ]]; do shift; done
for rank in 0 1; do
  SLURM_PROCID=$rank setsid "$@" &
  echo $! > group_$rank
done
highest=0
for rank in 0 1; do
  wait -n || { status=$?; ((status <= highest)) || highest=$status; }
done
exit $highest
"""


@pytest.fixture
def start_two_workers(tmp_path):
    """Starts a job of two workers that run a script, in the folder of the test."""
    write_executable(tmp_path / "srun", FAKE_SRUN)
    write_executable(tmp_path / "scontrol", 'echo "$@" >> scontrol.log')

    def start(worker: str) -> subprocess.Popen:
        settings = {"PYTHON": write_executable(tmp_path / "python", worker), "SLURM_JOB_ID": 17}
        return subprocess.Popen(
            ["bash", CLUSTER / "slurm.sh"],
            cwd=tmp_path,
            env=environment(tmp_path, **settings),
            stderr=subprocess.DEVNULL,
        )

    return start


@pytest.mark.parametrize(
    ("statuses", "status"),
    [((MISTAKE, LOST), MISTAKE), ((STOPPED, MISTAKE), MISTAKE), ((0, MISTAKE), MISTAKE), ((KILLED, LOST), KILLED)],
)
def test_slurm_does_not_requeue_jobs_with_a_failed_worker(tmp_path, start_two_workers, statuses, status):
    first, second = statuses
    job = start_two_workers(f"((SLURM_PROCID)) || exit {first}; exit {second}")
    assert job.wait(timeout=300) == status
    assert lines(tmp_path / "scontrol.log") == []


def test_slurm_workers_save_when_their_step_receives_sigterm(tmp_path, start_two_workers):
    saving = "trap 'sleep 0.2; touch saved_$SLURM_PROCID; exit 143' TERM"
    job = start_two_workers(f"{saving}; touch up_$SLURM_PROCID; while true; do sleep 0.05; done")
    wait_until(lambda: all((tmp_path / f"up_{rank}").exists() for rank in range(2)))
    for rank in range(2):
        os.killpg(int(lines(tmp_path / f"group_{rank}")[0]), signal.SIGTERM)
    assert job.wait(timeout=300) == STOPPED
    assert all((tmp_path / f"saved_{rank}").exists() for rank in range(2))
    assert lines(tmp_path / "scontrol.log") == ["requeue 17"]


@pytest.mark.parametrize("script", ["slurm.sh", "ssh.sh", "kubernetes.sh", "kubeflow.sh"])
def test_recipes_train_on_jax(tmp_path, script):
    settings = {"DRY_RUN": 1, "HOSTS": "one two"}
    flags = ["--model_dir=/t2t/run"]
    result = run(script, *flags, env=environment(tmp_path, **settings, BACKEND="jax"))
    assert result.returncode == 0 and "--strategy" not in result.stdout
    assert "launch.train" in result.stdout and "--set" not in result.stdout
    result = run(script, *flags, env=environment(tmp_path, **settings, BACKEND="torch"))
    assert (result.returncode, result.stderr) == (1, "error: BACKEND is tensorflow or jax, not torch\n")


# ---- Kubernetes ----


def manifests(**settings: object) -> dict[str, dict]:
    env = {**os.environ, "DRY_RUN": "1", **{name: str(value) for name, value in settings.items()}}
    result = run("kubernetes.sh", "--preset=big", "--model_dir=/t2t/it's: {a}", env=env)
    assert result.returncode == 0, result.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(result.stdout)}


def pod(by_kind: dict[str, dict]) -> dict:
    return by_kind["Job"]["spec"]["template"]["spec"]


def test_kubernetes_runs_one_worker_per_pod():
    by_kind = manifests(NAME="mine", WORKERS=3, PORT=1234, GPUS=4)
    assert set(by_kind) == {"PersistentVolumeClaim", "Service", "Job"}
    job = by_kind["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    (worker,) = pod(by_kind)["containers"]
    assert [worker["command"], *worker["args"][:4]] == [
        ["python"],
        "-m",
        "launch.train",
        "--strategy=multiworker",
        "--cluster=kubernetes",
    ]
    assert worker["args"][4:] == ["--preset=big", "--model_dir=/t2t/it's: {a}"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert {item["name"]: item["value"] for item in worker["env"]} == {
        "T2T_SERVICE": "mine",
        "T2T_WORKERS": "3",
        "T2T_PORT": "1234",
        "KERAS_BACKEND": "tensorflow",
    }


def test_kubernetes_workers_find_each_other():
    """Kubernetes names the pods of an indexed Job JOB-INDEX, with the host name JOB-INDEX.SUBDOMAIN."""
    by_kind = manifests(NAME="mine")
    service, metadata = by_kind["Service"]["spec"], by_kind["Job"]["metadata"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert service["selector"] == {"batch.kubernetes.io/job-name": metadata["name"]}
    (worker,) = pod(by_kind)["containers"]
    names = {
        by_kind["Service"]["metadata"]["name"],
        metadata["name"],
        pod(by_kind)["subdomain"],
        worker["env"][0]["value"],
    }
    assert names == {"mine"}
    assert service["ports"][0]["port"] == worker["ports"][0]["containerPort"] == int(worker["env"][2]["value"])


def test_kubernetes_restarts_interrupted_workers_only():
    by_kind = manifests(SAVING_SECONDS=400)
    job = by_kind["Job"]["spec"]
    assert pod(by_kind)["restartPolicy"] == "Never"  # required by podFailurePolicy
    assert pod(by_kind)["terminationGracePeriodSeconds"] == 400
    assert manifests()["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 120
    assert pod(by_kind)["shareProcessNamespace"] is True  # otherwise, the program is process 1 and may ignore SIGTERM
    assert job["podReplacementPolicy"] == "Failed"
    assert job["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}  # the worker that writes the run
    rules = job["podFailurePolicy"]["rules"]
    (worker,) = pod(by_kind)["containers"]

    def action(status: int, conditions: tuple[str, ...] = ()) -> str:
        """The action of the first rule that matches."""
        for rule in rules:
            codes = rule.get("onExitCodes", {"containerName": worker["name"], "operator": "In", "values": []})
            assert codes["containerName"] == worker["name"] and codes["operator"] == "In"
            if status in codes["values"] or any(c["type"] in conditions for c in rule.get("onPodConditions", [])):
                return rule["action"]
        return "Count"

    assert action(MISTAKE) == "FailJob"
    assert action(STOPPED) == action(LOST) == "Ignore"
    assert action(KILLED, ("DisruptionTarget",)) == action(MISTAKE, ("DisruptionTarget",)) == "Ignore"
    assert action(KILLED) == action(AWAY) == "Count" and job["backoffLimit"] > 0


def documented_pods() -> list[dict]:
    """The pods that the README files of this folder create."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(CLUSTER.rglob("README.md"))]
    blocks = [block for text in texts for block in re.findall(r"<<'YAML'\n(.*?\n)YAML\n", text, re.DOTALL)]
    return [yaml.safe_load(block) for block in blocks]


def test_documented_pods_mount_the_claims_of_the_manifests():
    served = (CLUSTER / "serving/kubernetes.yaml").read_text(encoding="utf-8").partition("\n---\n")[0]
    claims = {manifests()["PersistentVolumeClaim"]["metadata"]["name"], yaml.safe_load(served)["metadata"]["name"]}
    specs = [each["spec"] for each in documented_pods()]
    volumes = [volume for spec in specs for volume in spec["volumes"]]
    names = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in volumes}
    assert len(specs) == 3 and set(names.values()) == claims
    for (container,) in (spec["containers"] for spec in specs):
        mounts = {names[mount["name"]]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts.items() <= {"t2t": "/t2t", "translation-model": "/models"}.items()


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_kubernetes_manifests_match_the_schema(version):
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (119 MB) is not installed")
    for each in documented_pods():
        validator.validate(each, version, strict=True)
    for settings in ({}, {"STORAGE_CLASS": "nfs", "PRIORITY_CLASS": "low", "NAME": "mine"}):
        for document in manifests(**settings).values():
            validator.validate(document, version, strict=True)
