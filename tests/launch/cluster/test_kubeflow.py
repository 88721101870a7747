"""What kubeflow.sh applies: the fields that Kubeflow Trainer, JobSet and Kubernetes have, and workers that meet."""

import os

import pytest
import yaml

from t2t_keras.training.devices.cluster import Cluster, find_cluster
from tests.launch.cluster.stand_ins import LOST, MISTAKE, STOPPED, run

pytestmark = pytest.mark.integration


def manifests(*flags: str, **settings: object) -> dict[str, dict]:
    env = {**os.environ, "DRY_RUN": "1", **{name: str(value) for name, value in settings.items()}}
    done = run("kubeflow.sh", *flags, env=env)
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}


def at(document: dict, path: str):
    for name in path.split(".") if path else ():
        document = document[int(name)] if name.isdecimal() else document[name]
    return document


def job(found: dict[str, dict]) -> dict:
    """The Job that JobSet makes of the runtime, as Trainer completes its container."""
    (replicated,) = at(found["TrainingRuntime"], "spec.template.spec.replicatedJobs")
    (container,) = at(replicated, "template.spec.template.spec.containers")
    trainer = found["TrainJob"]["spec"]["trainer"]
    container |= {name: trainer[name] for name in ("image", "command", "args", "env")}
    container["resources"] = trainer["resourcesPerNode"]
    name = f"{found['TrainJob']['metadata']['name']}-{replicated['name']}-0"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": replicated["template"]["spec"]}


def test_the_training_is_what_trainer_looks_for():
    found = manifests("--model_dir=/t2t/it's: {a}", NAME="mine", WORKERS=3, GPUS=4)
    reference = found["TrainJob"]["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == ("TrainingRuntime", found["TrainingRuntime"]["metadata"]["name"])
    (replicated,) = at(found["TrainingRuntime"], "spec.template.spec.replicatedJobs")
    assert replicated["name"] == "node" and replicated["replicas"] == 1
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    made = job(found)["spec"]
    assert (made["completionMode"], made["completions"], made["parallelism"]) == ("Indexed", 3, 3)
    assert at(found["TrainJob"], "spec.trainer.numNodes") == at(found["TrainingRuntime"], "spec.mlPolicy.numNodes") == 3
    (worker,) = made["template"]["spec"]["containers"]
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
    """JobSet calls the pods JOBSET-ROLE-JOB-INDEX, and their Service as the JobSet, which is called as the TrainJob."""
    found = manifests(NAME="mine", WORKERS=2, PORT=1234)
    made = job(found)
    (worker,) = made["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in worker["env"]}
    hosts = [f"{made['metadata']['name']}-{index}.{found['TrainJob']['metadata']['name']}:1234" for index in range(2)]
    assert find_cluster("kubernetes", {**variables, "JOB_COMPLETION_INDEX": "1"}) == Cluster(tuple(hosts), 1)
    assert worker["ports"][0]["containerPort"] == 1234
    assert "subdomain" not in at(found["TrainingRuntime"], "spec.template.spec.network")  # so it is the JobSet's name


def test_what_was_stopped_starts_again_and_what_is_wrong_does_not():
    made = job(manifests(SAVING_SECONDS=400))["spec"]
    by_status = {
        status: rule["action"]
        for rule in made["podFailurePolicy"]["rules"]
        for status in rule.get("onExitCodes", {"values": []})["values"]
    }
    assert by_status == {MISTAKE: "FailJob", STOPPED: "Ignore", LOST: "Ignore"}
    assert made["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert made["podReplacementPolicy"] == "Failed" and made["backoffLimit"] > 0
    assert made["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}  # the worker that writes the run
    pod = made["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["terminationGracePeriodSeconds"] == 400
    assert at(manifests()["TrainingRuntime"], "spec.template.spec.failurePolicy.maxRestarts") == 0
