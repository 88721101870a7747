"""The recipes as scripts: sound, and doing what they say, with stand-ins for the cluster and for the training."""

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
    executable,
    lines,
    run,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SCRIPTS = ("slurm.sh", "slurm_study.sh", "kubernetes.sh", "kubeflow.sh", "tpu_vm.sh", "ssh.sh", "beam.sh")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_pass_shellcheck(script):
    done = subprocess.run(["shellcheck", CLUSTER / script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_has_what_the_installation_reads():
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
def test_slurm_queues_again_what_was_stopped_and_nothing_else(tmp_path, status, restarts, is_requeued):
    executable(tmp_path / "srun", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
    executable(tmp_path / "scontrol", f'echo "$@" >> {tmp_path}/scontrol.log')
    python = executable(tmp_path / "python", f'printf "%s\\n" "$@" > {tmp_path}/arguments; exit {status}')
    settings = {"PYTHON": python, "SLURM_JOB_ID": 17, "SLURM_RESTART_COUNT": restarts, "RESTARTS": 3}
    done = run("slurm.sh", "--model_dir=a b", env=environment(tmp_path, **settings))
    assert done.returncode == status
    assert lines(tmp_path / "scontrol.log") == (["requeue 17"] if is_requeued else [])
    flags = ["--strategy=multiworker", "--cluster=slurm", "--model_dir=a b"]
    assert lines(tmp_path / "arguments") == ["-m", "launch.train", *flags]


# As srun does it: the command once for each worker, side by side; the highest status of all.
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
def two_workers(tmp_path):
    """A function that starts a job of two workers, which are as a script says, in the test's folder."""
    executable(tmp_path / "srun", FAKE_SRUN)
    executable(tmp_path / "scontrol", 'echo "$@" >> scontrol.log')

    def start(worker: str) -> subprocess.Popen:
        settings = {"PYTHON": executable(tmp_path / "python", worker), "SLURM_JOB_ID": 17}
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
def test_slurm_does_not_queue_again_what_one_worker_is_at_fault_for(tmp_path, two_workers, statuses, status):
    first, second = statuses
    job = two_workers(f"((SLURM_PROCID)) || exit {first}; exit {second}")
    assert job.wait(timeout=300) == status
    assert lines(tmp_path / "scontrol.log") == []


def test_slurm_workers_save_when_their_whole_step_gets_a_signal(tmp_path, two_workers):
    saving = "trap 'sleep 0.2; touch saved_$SLURM_PROCID; exit 143' TERM"
    job = two_workers(f"{saving}; touch up_$SLURM_PROCID; while true; do sleep 0.05; done")
    wait_until(lambda: all((tmp_path / f"up_{rank}").exists() for rank in range(2)))
    for rank in range(2):
        os.killpg(int(lines(tmp_path / f"group_{rank}")[0]), signal.SIGTERM)
    assert job.wait(timeout=300) == STOPPED
    assert all((tmp_path / f"saved_{rank}").exists() for rank in range(2))
    assert lines(tmp_path / "scontrol.log") == ["requeue 17"]


@pytest.mark.parametrize("script", ["slurm.sh", "ssh.sh", "kubernetes.sh", "kubeflow.sh"])
def test_recipes_train_on_jax_too(tmp_path, script):
    settings = {"DRY_RUN": 1, "HOSTS": "one two"}
    flags = ["--model_dir=/t2t/run"]
    done = run(script, *flags, env=environment(tmp_path, **settings, BACKEND="jax"))
    assert done.returncode == 0 and "--strategy" not in done.stdout
    assert "launch.train" in done.stdout and "--set" not in done.stdout
    done = run(script, *flags, env=environment(tmp_path, **settings, BACKEND="torch"))
    assert (done.returncode, done.stderr) == (1, "error: BACKEND is tensorflow or jax, not torch\n")


# ---- SLURM, a table ----


# ---- Kubernetes ----


def manifests(**settings: object) -> dict[str, dict]:
    env = {**os.environ, "DRY_RUN": "1", **{name: str(value) for name, value in settings.items()}}
    done = run("kubernetes.sh", "--preset=big", "--model_dir=/t2t/it's: {a}", env=env)
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


def pod(found: dict[str, dict]) -> dict:
    return found["Job"]["spec"]["template"]["spec"]


def test_kubernetes_has_one_worker_a_pod():
    found = manifests(NAME="mine", WORKERS=3, PORT=1234, GPUS=4)
    assert set(found) == {"PersistentVolumeClaim", "Service", "Job"}
    job = found["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    (worker,) = pod(found)["containers"]
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
    """Pods of an indexed Job are named JOB-INDEX; as a host that is JOB-INDEX.SUBDOMAIN, the subdomain a Service's."""
    found = manifests(NAME="mine")
    service, metadata = found["Service"]["spec"], found["Job"]["metadata"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert service["selector"] == {"batch.kubernetes.io/job-name": metadata["name"]}
    (worker,) = pod(found)["containers"]
    names = {found["Service"]["metadata"]["name"], metadata["name"], pod(found)["subdomain"], worker["env"][0]["value"]}
    assert names == {"mine"}
    assert service["ports"][0]["port"] == worker["ports"][0]["containerPort"] == int(worker["env"][2]["value"])


def test_kubernetes_starts_again_what_was_stopped_and_not_what_is_wrong():
    found = manifests(SAVING_SECONDS=400)
    job = found["Job"]["spec"]
    assert pod(found)["restartPolicy"] == "Never"  # as podFailurePolicy demands
    assert pod(found)["terminationGracePeriodSeconds"] == 400
    assert manifests()["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 120
    assert pod(found)["shareProcessNamespace"] is True  # nothing is process 1, which SIGTERM may not end
    assert job["podReplacementPolicy"] == "Failed"
    assert job["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}  # the worker that writes the run
    rules = job["podFailurePolicy"]["rules"]
    (worker,) = pod(found)["containers"]

    def action(status: int, conditions: tuple[str, ...] = ()) -> str:
        """What Kubernetes does by the first rule that fits."""
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
    """Those that the pages of this folder create by hand."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(CLUSTER.rglob("README.md"))]
    found = [block for text in texts for block in re.findall(r"<<'YAML'\n(.*?\n)YAML\n", text, re.DOTALL)]
    return [yaml.safe_load(block) for block in found]


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
def test_kubernetes_manifests_fit_the_schema(version):
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (119 MB) is not installed")
    for each in documented_pods():
        validator.validate(each, version, strict=True)
    for settings in ({}, {"STORAGE_CLASS": "nfs", "PRIORITY_CLASS": "low", "NAME": "mine"}):
        for document in manifests(**settings).values():
            validator.validate(document, version, strict=True)
