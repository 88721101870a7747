"""The image and the manifests of launch.serve are valid, and agree with the program."""

import json
import os
import pathlib
import tomllib

import pytest
import yaml

from tests import programs

ROOT = pathlib.Path(__file__).parents[3]
SERVING = ROOT / "launch" / "cluster" / "serving"
NAME = "translation"


def instructions() -> list[list[str]]:
    """The instructions of the Dockerfile and their arguments."""
    text = (SERVING / "serve.Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def instruction(name: str) -> str:
    (arguments,) = [arguments for keyword, arguments in instructions() if keyword == name]
    return arguments


def documents(file: str) -> dict[str, dict]:
    documents = yaml.safe_load_all((SERVING / file).read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


def pod() -> dict:
    return documents("serve.yaml")["Deployment"]["spec"]["template"]["spec"]


def container() -> dict:
    (spec,) = pod()["containers"]
    return spec


def arguments() -> list[str]:
    """The arguments of the program in a pod: those of the image, then those of the manifest."""
    return [*json.loads(instruction("ENTRYPOINT"))[1:], *container()["args"]]


def test_the_image_installs_and_runs_the_program():
    copied = [word for name, value in instructions() if name == "COPY" for word in value.split()[:-1]]
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "t2t_keras", "launch"} == set(copied)
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "'.[serve,fast,remote]'" in instruction("RUN")
    assert {"serve", "fast", "remote"} <= set(project["optional-dependencies"])
    command = json.loads(instruction("ENTRYPOINT"))[0]
    assert project["scripts"][command] == "t2t_keras.launch.serve:run"


def test_flags_are_valid():
    commands = json.dumps([["serve", arguments()], ["serve", ["--no_such_flag=1"]]])
    parser = [str(pathlib.Path(__file__).parent / "parse_commands.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = programs.run(parser, input=commands, capture_output=True, text=True, env=environment, check=True)
    valid, unknown = json.loads(result.stdout.splitlines()[-1])
    assert valid is None and "no_such_flag" in unknown


def test_model_ports_names_and_times_are_consistent():
    flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments())
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    assert flags["export_dir"] == mounts["model"]["mountPath"] == f"/models/{NAME}"
    ports = {port["name"]: str(port["containerPort"]) for port in container()["ports"]}
    assert ports == {"rest": flags["rest_port"], "grpc": flags["grpc_port"]}
    assert set(instruction("EXPOSE").split()) == set(ports.values())
    cores = {values["cpu"] for values in container()["resources"].values()}
    assert cores == {flags["num_streams"]}
    service = documents("serve.yaml")["Service"]["metadata"]["name"]
    assert all(host == service or host.startswith(f"{service}.") for host in flags["allowed_hosts"].split(","))
    stop = int(container()["lifecycle"]["preStop"]["exec"]["command"][1]) + int(flags["grace_seconds"])
    assert pod()["terminationGracePeriodSeconds"] > stop
    assert container()["readinessProbe"]["httpGet"] == {"path": f"/v1/models/{NAME}", "port": "rest"}
    # The server is alive while it waits for its first version.
    assert container()["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "rest"}
    assert "startupProbe" not in container()


@pytest.mark.parametrize("version", ["1.29", "1.31"])
@pytest.mark.parametrize("file", ["serve.yaml", "kubernetes.yaml"])
def test_manifests_match_the_schema(file, version):
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (119 MB) is not installed")
    for document in documents(file).values():
        validator.validate(document, version, strict=True)
