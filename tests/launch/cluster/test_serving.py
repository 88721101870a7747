"""The files for TensorFlow Serving, and the clients, which call a real server."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests import programs
from tests.serving import page_model
from tests.serving.certificates import make_certificate

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[3]
SERVING = ROOT / "launch" / "cluster" / "serving"
NAME = "translation"
STATUS = f"/v1/models/{NAME}"

# Flags of tensorflow_model_server (tensorflow_serving/model_servers/main.cc) in the manifests, and their purposes.
FLAGS = {
    "port": "gRPC",
    "rest_api_port": "REST, which is disabled by default",
    "rest_api_timeout_in_ms": "a batch of long sentences may exceed the default of 30 seconds",
    "model_config_file": "the name of the model and the folder of its versions",
    "enable_batching": "without it, every request runs separately",
    "batching_parameters_file": "the defaults suit models that respond in a millisecond",
    "monitoring_config_file": "metrics are disabled by default",
    "file_system_poll_wait_seconds": "the delay until a new version is loaded",
    "tensorflow_intra_op_parallelism": "one thread per operation",
    "tensorflow_inter_op_parallelism": "as many parallel operations as cores",
}
FILES = ("models.config", "batching_parameters.txt", "monitoring.config")


def compose_service() -> dict:
    (service,) = yaml.safe_load((SERVING / "docker-compose.yml").read_text(encoding="utf-8"))["services"].values()
    return service


def kubernetes() -> dict[str, dict]:
    text = (SERVING / "kubernetes.yaml").read_text(encoding="utf-8")
    documents = list(yaml.safe_load_all(text))
    return {document["kind"]: document for document in documents}


def pod() -> dict:
    return kubernetes()["Deployment"]["spec"]["template"]["spec"]


def container() -> dict:
    (spec,) = pod()["containers"]
    return spec


def flags(words: list[str]) -> dict[str, str]:
    return dict(re.findall(r"^--(\w+)=(.+)\Z", word)[0] for word in words)


def both_flags() -> list[dict[str, str]]:
    return [flags(compose_service()["command"]), flags(container()["args"])]


def test_both_manifests_pass_the_same_known_flags():
    for flags_found in both_flags():
        assert set(flags_found) == set(FLAGS)
        assert flags_found["enable_batching"] == "true"
    assert both_flags()[0] == both_flags()[1]


def test_configuration_and_model_are_mounted():
    volumes = [volume.rsplit(":", 2) for volume in compose_service()["volumes"]]
    mounted = {target: source for source, target, mode in volumes if mode == "ro"}
    for name in FILES:
        assert mounted.pop(f"/config/{name}") == f"./{name}"
    assert list(mounted) == [f"/models/{NAME}"]
    kustomization = yaml.safe_load((SERVING / "kustomization.yaml").read_text(encoding="utf-8"))
    (generator,) = kustomization["configMapGenerator"]
    assert sorted(generator["files"]) == sorted(FILES)
    assert kustomization["resources"] == ["kubernetes.yaml"]
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    sources = {volume["name"]: volume for volume in pod()["volumes"]}
    assert sources["config"]["configMap"]["name"] == generator["name"] and mounts["config"]["mountPath"] == "/config"
    claim = kubernetes()["PersistentVolumeClaim"]["metadata"]["name"]
    assert sources["model"]["persistentVolumeClaim"]["claimName"] == claim
    assert mounts["model"]["mountPath"] == f"/models/{NAME}" and mounts["model"]["readOnly"]
    for flags_found in both_flags():
        for flag, name in zip(
            ("model_config_file", "batching_parameters_file", "monitoring_config_file"), FILES, strict=True
        ):
            assert flags_found[flag] == f"/config/{name}"


def test_probes_request_the_status_of_the_model():
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container()[probe]["httpGet"] == {"path": STATUS, "port": "rest"}
    check = compose_service()["healthcheck"]["test"]
    assert check[:3] == ["CMD", "bash", "-c"]
    assert f"GET {STATUS} HTTP/1.1" in check[3] and f"/{both_flags()[0]['rest_api_port']} " in check[3]
    subprocess.run(["bash", "-n", "-c", check[3]], check=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("exports"))
    server = Server(ServingOptions(str(export_dir), name=NAME, rest_port=0, grpc_port=0, grace_seconds=5))
    server.start()
    yield server
    server.stop()


# With characters that JSON and shells escape, and a blank line.
SENTENCES = ["one two", 'a "quoted" word', "a \\ and a $HOME and 100 %s", "", "ein Käse für Øystein 😀", "tab\there"]


def shell_client(server: Server, *arguments: str, stdin: str = "", **settings: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "SERVER": server.rest_address, **settings}
    command = ["bash", str(SERVING / "client.sh"), *arguments]
    return subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, encoding="utf-8")


def grpc_client(server: Server, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess:
    command = [str(SERVING / "client_grpc.py"), f"--server={server.grpc_address}", *arguments]
    return programs.run(command, input=stdin, capture_output=True, text=True, encoding="utf-8")


def predictions(output: str) -> list[str]:
    """The translations in a sequence of JSON responses."""
    decoder, translations, output = json.JSONDecoder(), [], output.strip()
    while output:
        answer, end = decoder.raw_decode(output)
        translations += [prediction["translation"] for prediction in answer["predictions"]]
        output = output[end:].lstrip()
    return translations


needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")


@needs_curl
def test_the_shell_client_translates_arguments_and_lines(server):
    expected = [sentence.upper() for sentence in SENTENCES]
    assert predictions(shell_client(server, *SENTENCES).stdout) == expected
    result = shell_client(server, stdin="\n".join(SENTENCES) + "\n", BATCH="4")
    assert predictions(result.stdout) == expected
    assert result.stdout.count('"predictions"') == 2


@needs_curl
def test_errors_of_the_shell_client(server):
    failed = shell_client(server, "bad")
    assert failed.returncode != 0 and "no such word" in json.loads(failed.stdout)["error"]
    assert shell_client(server, "one", MODEL="other").returncode != 0
    unreachable = shell_client(server, "one", SERVER="127.0.0.1:1")
    assert unreachable.returncode != 0 and "127.0.0.1" in unreachable.stderr


def test_the_grpc_client_translates_lines(server):
    result = grpc_client(server, "--score", "--batch=4", stdin="".join(f"{sentence}\n" for sentence in SENTENCES))
    assert result.returncode == 0 and "error:" not in result.stderr
    rows = [line.rpartition("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == [sentence.upper() for sentence in SENTENCES]
    assert [float(row[2]) for row in rows] == [round(-0.1 * len(sentence.encode()), 4) for sentence in SENTENCES]


@needs_curl
def test_clients_support_keys_and_tls(server, tmp_path):
    certificate, private_key = make_certificate(tmp_path)
    (tmp_path / "keys").write_text('a"quoted\\key\nsecond-key\n')
    (tmp_path / "blank").write_text("\n")
    settings = {"tls_certificate": certificate, "tls_key": private_key, "api_key_file": str(tmp_path / "keys")}
    secured = Server(dataclasses.replace(server.core.options, **settings))
    secured.start()
    try:
        keys = str(tmp_path / "keys")
        assert predictions(shell_client(secured, "one", CA=certificate, KEY_FILE=keys).stdout) == ["ONE"]
        assert "a key is required" in shell_client(secured, "one", CA=certificate).stdout
        assert shell_client(secured, "one", KEY_FILE=keys).returncode != 0
        result = grpc_client(secured, f"--ca={certificate}", f"--key_file={keys}", stdin="one\n")
        assert (result.returncode, result.stdout) == (0, "ONE\n")
        result = grpc_client(secured, f"--ca={certificate}", f"--key_file={tmp_path / 'blank'}", stdin="one\n")
        assert (result.returncode, result.stdout) == (2, "") and "blank: the file contains no key" in result.stderr
        assert "UNAUTHENTICATED: a key is required" in grpc_client(secured, f"--ca={certificate}", stdin="one\n").stderr
    finally:
        secured.stop()
