"""The recipes for Kubernetes with data and runs in a bucket: local disks of the pods replace the shared volume."""

import os

import pytest
import yaml

from tests.launch.cluster import test_kubeflow
from tests.launch.cluster.stand_ins import run

pytestmark = pytest.mark.integration

RECIPES = ("kubernetes.sh", "kubeflow.sh")
IN_A_BUCKET = ("--data_dir=s3://mine/data", "--model_dir=s3://mine/run")


def print_manifests(recipe: str, *flags: str, **settings: object) -> str:
    variables = {name: str(value) for name, value in settings.items()}
    result = run(recipe, *flags, env={**os.environ, "DRY_RUN": "1", **variables})
    assert result.returncode == 0, result.stderr
    return result.stdout


def manifests(recipe: str, *flags: str, **settings: object) -> dict[str, dict]:
    """The manifests by kind; "Job" is the Job, or the Job that Kubeflow creates."""
    by_kind = {each["kind"]: each for each in yaml.safe_load_all(print_manifests(recipe, *flags, **settings))}
    return by_kind if "Job" in by_kind else {**by_kind, "Job": test_kubeflow.job(by_kind)}


def pod(by_kind: dict[str, dict]) -> dict:
    return by_kind["Job"]["spec"]["template"]["spec"]


def volumes(by_kind: dict[str, dict]) -> dict[str, tuple[str, dict]]:
    """The mount path and the source of each volume, by name."""
    (worker,) = pod(by_kind)["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    sources = {source.pop("name"): source for source in map(dict, pod(by_kind)["volumes"])}
    assert len(mounts) == len(worker["volumeMounts"]) and set(mounts) == set(sources)
    return {name: (mounts[name], source) for name, source in sources.items() if name != "shared-memory"}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    "flags",
    [
        IN_A_BUCKET,
        ("--data_dir", "gs://mine/data", "--preset=big", "--model_dir", "abfs://mine@account/run"),
        ("--model_dir=s3://mine/run",),
        (*IN_A_BUCKET, "--init_from=s3://mine/other@best"),
    ],
)
def test_buckets_replace_the_volume_by_local_disks(recipe, flags):
    by_kind = manifests(recipe, *flags, MIRRORS="7Gi")
    assert "PersistentVolumeClaim" not in by_kind
    assert volumes(by_kind) == {"mirrors": ("/mirrors", {"emptyDir": {"sizeLimit": "7Gi"}})}
    (worker,) = pod(by_kind)["containers"]
    assert {"name": "T2T_KERAS_CACHE", "value": "/mirrors"} in worker["env"]  # the cache folder of Mirror
    assert worker["resources"]["requests"]["ephemeral-storage"] == "7Gi"
    assert worker["args"][-len(flags) :] == list(flags)
    text = print_manifests(recipe, *flags)
    assert not [word for word in ("ReadWriteMany", "/t2t", "storage:", "laim") if f" {word}" in text]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    "flags",
    [
        ("--data_dir=/t2t/data", "--model_dir=s3://mine/run"),
        ("--data_dir", "s3://mine/data", "--model_dir", "/t2t/run"),
        (*IN_A_BUCKET, "--init_from=/t2t/runs/other@best"),
        (*IN_A_BUCKET, "--extension=/t2t/mine.py"),
        (*IN_A_BUCKET, "--extension", "/t2t/mine.py"),
        ("--data_dir=file:///t2t/data", "--model_dir=s3://mine/run"),
    ],
)
def test_local_paths_require_the_volume(recipe, flags):
    by_kind = manifests(recipe, *flags, NAME="mine", STORAGE="9Gi", MIRRORS="7Gi")
    assert volumes(by_kind) == {
        "storage": ("/t2t", {"persistentVolumeClaim": {"claimName": "mine"}}),
        "mirrors": ("/mirrors", {"emptyDir": {"sizeLimit": "7Gi"}}),
    }
    assert by_kind["PersistentVolumeClaim"] == manifests(recipe, NAME="mine", STORAGE="9Gi")["PersistentVolumeClaim"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("flags", [("--model_dir=runs/mine",), ("--data_dir", "data"), ("--init_from=./run:best",)])
def test_relative_paths_are_rejected(recipe, flags):
    result = run(recipe, *flags, env={**os.environ, "DRY_RUN": "1"})
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {'='.join(flags)} is a relative path: ") and result.stderr.count("\n") == 1
