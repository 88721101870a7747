"""The recipes for Kubernetes with data and run in a bucket: no shared volume, a disk of each pod's own, and access."""

import os

import pytest
import yaml

from tests.launch.cluster import test_kubeflow
from tests.launch.cluster.stand_ins import run

pytestmark = pytest.mark.integration

RECIPES = ("kubernetes.sh", "kubeflow.sh")
IN_A_BUCKET = ("--data_dir=s3://mine/data", "--model_dir=s3://mine/run")


def printed(recipe: str, *flags: str, **settings: object) -> str:
    given = {name: str(value) for name, value in settings.items()}
    done = run(recipe, *flags, env={**os.environ, "DRY_RUN": "1", **given})
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifests(recipe: str, *flags: str, **settings: object) -> dict[str, dict]:
    """By kind, with the Job that is made of them, whichever the recipe."""
    found = {each["kind"]: each for each in yaml.safe_load_all(printed(recipe, *flags, **settings))}
    return found if "Job" in found else {**found, "Job": test_kubeflow.job(found)}


def pod(found: dict[str, dict]) -> dict:
    return found["Job"]["spec"]["template"]["spec"]


def volumes(found: dict[str, dict]) -> dict[str, tuple[str, dict]]:
    """Where each volume of the pods is mounted, and what it is."""
    (worker,) = pod(found)["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    sources = {source.pop("name"): source for source in map(dict, pod(found)["volumes"])}
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
def test_folders_in_a_bucket_need_no_volume_but_a_disk_of_each_pod(recipe, flags):
    found = manifests(recipe, *flags, MIRRORS="7Gi")
    assert "PersistentVolumeClaim" not in found
    assert volumes(found) == {"mirrors": ("/mirrors", {"emptyDir": {"sizeLimit": "7Gi"}})}
    (worker,) = pod(found)["containers"]
    assert {"name": "T2T_KERAS_CACHE", "value": "/mirrors"} in worker["env"]  # where Mirror has its folders
    assert worker["resources"]["requests"]["ephemeral-storage"] == "7Gi"
    assert worker["args"][-len(flags) :] == list(flags)
    text = printed(recipe, *flags)
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
def test_what_is_not_in_a_bucket_has_the_volume_beside_it(recipe, flags):
    found = manifests(recipe, *flags, NAME="mine", STORAGE="9Gi", MIRRORS="7Gi")
    assert volumes(found) == {
        "storage": ("/t2t", {"persistentVolumeClaim": {"claimName": "mine"}}),
        "mirrors": ("/mirrors", {"emptyDir": {"sizeLimit": "7Gi"}}),
    }
    assert found["PersistentVolumeClaim"] == manifests(recipe, NAME="mine", STORAGE="9Gi")["PersistentVolumeClaim"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("flags", [("--model_dir=runs/mine",), ("--data_dir", "data"), ("--init_from=./run:best",)])
def test_a_relative_path_is_refused_since_it_would_go_with_the_pod(recipe, flags):
    done = run(recipe, *flags, env={**os.environ, "DRY_RUN": "1"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {'='.join(flags)} is a relative path: ") and done.stderr.count("\n") == 1
