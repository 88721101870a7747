"""The manifests of kubeflow.sh have the fields of Kubeflow Trainer, JobSet and Kubernetes, and connect the workers."""

import os

import pytest
import yaml

from t2t_keras.training.devices.cluster import Cluster, find_cluster
from tests.launch.cluster.stand_ins import LOST, MISTAKE, STOPPED, run

pytestmark = pytest.mark.integration


def manifests(*flags: str, **settings: object) -> dict[str, dict]:
    env = {**os.environ, "DRY_RUN": "1", **{name: str(value) for name, value in settings.items()}}
    result = run("kubeflow.sh", *flags, env=env)
    assert result.returncode == 0, result.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(result.stdout)}


def get_field(document: dict, path: str):
    for name in path.split(".") if path else ():
        document = document[int(name)] if name.isdecimal() else document[name]
    return document


def job(by_kind: dict[str, dict]) -> dict:
    """The Job that JobSet creates from the runtime, with the container as Trainer completes it."""
    (replicated,) = get_field(by_kind["TrainingRuntime"], "spec.template.spec.replicatedJobs")
    (container,) = get_field(replicated, "template.spec.template.spec.containers")
    trainer = by_kind["TrainJob"]["spec"]["trainer"]
    container |= {name: trainer[name] for name in ("image", "command", "args", "env")}
    container["resources"] = trainer["resourcesPerNode"]
    name = f"{by_kind['TrainJob']['metadata']['name']}-{replicated['name']}-0"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": replicated["template"]["spec"]}


def test_manifests_have_the_fields_of_trainer():
    by_kind = manifests("--model_dir=/t2t/it's: {a}", NAME="mine", WORKERS=3, GPUS=4)
    reference = by_kind["TrainJob"]["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == ("TrainingRuntime", by_kind["TrainingRuntime"]["metadata"]["name"])
    (replicated,) = get_field(by_kind["TrainingRuntime"], "spec.template.spec.replicatedJobs")
    assert replicated["name"] == "node" and replicated["replicas"] == 1
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job_spec = job(by_kind)["spec"]
    assert (job_spec["completionMode"], job_spec["completions"], job_spec["parallelism"]) == ("Indexed", 3, 3)
    assert (
        get_field(by_kind["TrainJob"], "spec.trainer.numNodes")
        == get_field(by_kind["TrainingRuntime"], "spec.mlPolicy.numNodes")
        == 3
    )
    (worker,) = job_spec["template"]["spec"]["containers"]
    assert worker["name"] == "node" and worker["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert [*worker["command"], *worker["args"]] == [
        "python",
        "-m",
        "launch.train",
        "--strategy=multiworker",
        "--cluster=kubernetes",
        "--model_dir=/t2t/it's: {a}",
    ]


def test_workers_find_each_other():
    """JobSet names pods JOBSET-ROLE-JOB-INDEX, and their Service like the JobSet, which is named like the TrainJob."""
    by_kind = manifests(NAME="mine", WORKERS=2, PORT=1234)
    worker_job = job(by_kind)
    (worker,) = worker_job["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in worker["env"]}
    hosts = [
        f"{worker_job['metadata']['name']}-{index}.{by_kind['TrainJob']['metadata']['name']}:1234" for index in range(2)
    ]
    assert find_cluster("kubernetes", {**variables, "JOB_COMPLETION_INDEX": "1"}) == Cluster(tuple(hosts), 1)
    assert worker["ports"][0]["containerPort"] == 1234
    assert "subdomain" not in get_field(
        by_kind["TrainingRuntime"], "spec.template.spec.network"
    )  # defaults to the JobSet's name


def test_interrupted_workers_restart_and_invalid_input_fails_the_job():
    job_spec = job(manifests(SAVING_SECONDS=400))["spec"]
    actions = {
        status: rule["action"]
        for rule in job_spec["podFailurePolicy"]["rules"]
        for status in rule.get("onExitCodes", {"values": []})["values"]
    }
    assert actions == {MISTAKE: "FailJob", STOPPED: "Ignore", LOST: "Ignore"}
    assert job_spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [
        {"type": "DisruptionTarget", "status": "True"}
    ]
    assert job_spec["podReplacementPolicy"] == "Failed" and job_spec["backoffLimit"] > 0
    assert job_spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}  # the worker that writes the run
    pod = job_spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["terminationGracePeriodSeconds"] == 400
    assert get_field(manifests()["TrainingRuntime"], "spec.template.spec.failurePolicy.maxRestarts") == 0
