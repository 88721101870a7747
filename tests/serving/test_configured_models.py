"""Several models of one configuration over real sockets: policies, labels, changed files and ReloadConfig."""

import contextlib
import shutil

import grpc
import httpx
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, model_pb2, model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_pb2_grpc

from t2t_keras.errors import InputError
from t2t_keras.serving.core import Core
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.served_models import Loader
from t2t_keras.serving.server import Server
from tests.waiting import wait_until


def config(*models):
    return "model_config_list {\n" + "".join(f"  config {{ {model} }}\n" for model in models) + "}\n"


@pytest.fixture
def folder(versions_1_and_2, tmp_path):
    shutil.copytree(versions_1_and_2, tmp_path / "both")
    shutil.copytree(versions_1_and_2 / "1", tmp_path / "one" / "1")
    return tmp_path


def rewrite(file, text):
    """Replaces the file by renaming, as an editor or a mounted ConfigMap does."""
    new = file.with_name("new")
    new.write_text(text)
    new.rename(file)


class Calls:
    """Calls a server, whose models return their version."""

    def __init__(self, server, channel, http):
        self.server, self.http = server, http
        self.prediction = prediction_pb2_grpc.PredictionServiceStub(channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)

    def rest(self, path):
        """The version of the response, or the status and the error."""
        body = {"signature_name": "single", "inputs": ["a"]}
        answer = self.http.post(f"http://{self.server.rest_address}/v1/models/{path}:predict", json=body)
        return (
            answer.json()["outputs"][0] if answer.status_code == 200 else (answer.status_code, answer.json()["error"])
        )

    def grpc(self, name, label):
        spec = model_pb2.ModelSpec(name=name, version_label=label, signature_name="single")
        request = predict_pb2.PredictRequest(model_spec=spec)
        request.inputs["text"].dtype = 7
        request.inputs["text"].string_val.append(b"a")
        request.inputs["text"].tensor_shape.dim.add(size=1)
        return self.prediction.Predict(request, timeout=300).outputs["version"].int_val[0]

    def reload(self, text):
        request = text_format.Parse(f"config {{ {text} }}", model_management_pb2.ReloadConfigRequest())
        return self.models.HandleReloadConfigRequest(request, timeout=300)


def serve(file, poll_seconds):
    return serve_options(
        ServingOptions(model_config_file=str(file), rest_port=0, grpc_port=0, poll_seconds=poll_seconds)
    )


@contextlib.contextmanager
def serve_options(options, *substitutes):
    server = Server(options, Loader(*substitutes))
    server.start()
    with grpc.insecure_channel(server.grpc_address) as channel, httpx.Client(timeout=300) as http:
        yield Calls(server, channel, http)
    assert server.stop()


@pytest.mark.integration
def test_models_policies_and_labels(folder):
    file = folder / "models.config"
    both = f'base_path: "{folder}/both"'
    file.write_text(
        config(
            f'name: "latest" {both} model_platform: "tensorflow"',
            f'name: "all" {both} model_version_policy {{ all {{}} }} '
            'version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 }',
            f'name: "first" {both} model_version_policy {{ specific {{ versions: 1 }} }} '
            'version_labels { key: "next" value: 2 }',
        )
    )
    with serve(file, 60) as calls:
        assert [calls.rest(name) for name in ("latest", "all", "first")] == [2, 2, 1]
        assert calls.rest("latest/versions/1") == (404, "Servable not found for request: Specific(latest, 1)")
        assert [calls.rest(f"all/versions/{version}") for version in (1, 2)] == [1, 2]
        assert [calls.rest(f"all/labels/{label}") for label in ("stable", "canary")] == [1, 2]
        assert [calls.grpc("all", label) for label in ("stable", "canary")] == [1, 2]
        assert calls.rest("all/labels/other") == (400, "Unrecognized servable version label: other")
        assert calls.rest("first/labels/next") == (404, "Servable not found for request: Specific(first, 2)")
        states = calls.http.get(f"http://{calls.server.rest_address}/v1/models/all").json()["model_version_status"]
        assert [(state["version"], state["state"]) for state in states] == [("2", "AVAILABLE"), ("1", "AVAILABLE")]
        text = calls.http.get(f"http://{calls.server.rest_address}/monitoring/prometheus/metrics").text
        assert ':tensorflow:serving:request_count{model_name="first",status="OK"} 1.0' in text


@pytest.mark.integration
def test_changed_and_damaged_configuration_files(folder, caplog):
    file = folder / "models.config"
    stable = f'name: "mine" base_path: "{folder}/both" version_labels {{ key: "stable" value: 2 }}'
    file.write_text(config(stable))
    with serve(file, 0.05) as calls:
        assert calls.rest("mine/labels/stable") == 2 and calls.rest("other")[0] == 404
        rewrite(file, config(stable)[:-10])
        wait_until(lambda: "the models are unchanged" in caplog.text)
        (record,) = [record for record in caplog.records if "the models are unchanged" in record.message]
        assert record.message.startswith(f"{file}: ") and "\n" not in record.message
        assert calls.rest("mine/labels/stable") == 2
        back = stable.replace("value: 2", "value: 1") + " model_version_policy { specific { versions: 1 } }"
        rewrite(file, config(back, f'name: "other" base_path: "{folder}/one"'))
        wait_until(lambda: calls.rest("other") == 1)
        assert calls.rest("mine") == calls.rest("mine/labels/stable") == 1
        rewrite(file, config(f'name: "other" base_path: "{folder}/both"'))
        wait_until(lambda: calls.rest("other") == 2)
        wait_until(lambda: calls.rest("mine") == (404, "Servable not found for request: Latest(mine)"))
        (folder / "empty").mkdir()
        rewrite(file, config(f'name: "other" base_path: "{folder}/empty"'))
        wait_until(lambda: f"no version could be loaded for other from {folder}/empty" in caplog.text)
        assert calls.rest("other") == 2
        shutil.copytree(folder / "one" / "1", folder / "new")
        (folder / "new").rename(folder / "empty" / "1")
        wait_until(lambda: calls.rest("other") == 1)


@pytest.mark.integration
def test_reload_config(folder):
    file = folder / "models.config"
    file.write_text(config(f'name: "mine" base_path: "{folder}/one"'))
    with serve(file, 60) as calls:
        assert calls.rest("mine") == 1
        response = calls.reload(
            config(f'name: "mine" base_path: "{folder}/one"', f'name: "other" base_path: "{folder}/both"')
        )
        assert response.HasField("status") and response.status.error_code == 0
        assert [calls.rest("mine"), calls.rest("other")] == [1, 2]
        versions = calls.server.core.models.get("mine")
        others = f'name: "other" base_path: "{folder}/both"'
        calls.reload(config(f'name: "mine" base_path: "{folder}//one/"', others))
        assert calls.server.core.models.get("mine") is versions, "paths are normalized"
        for text, words in [
            (config('name: "mine" base_path: "/nowhere"'), "ReloadConfigRequest: model 'mine': base_path /nowhere: no"),
            ("custom_model_config {}", "custom_model_config is not supported"),
            ("", "no model"),
        ]:
            with pytest.raises(grpc.RpcError) as caught:
                calls.reload(text)
            assert caught.value.code().name == "INVALID_ARGUMENT" and words in caught.value.details()
        assert [calls.rest("mine"), calls.rest("other")] == [1, 2]
        (folder / "empty").mkdir()
        with pytest.raises(grpc.RpcError) as caught:
            calls.reload(
                config(f'name: "mine" base_path: "{folder}/empty"', f'name: "new" base_path: "{folder}/empty"')
            )
        assert caught.value.code().name == "UNKNOWN"
        places = f"mine from {folder}/empty, new from {folder}/empty"
        assert caught.value.details() == f"no version could be loaded for {places}; see the log"
        assert calls.rest("mine") == 1 and calls.rest("new")[0] == calls.rest("other")[0] == 404
        shutil.copytree(folder / "both" / "2", folder / "empty" / "2")
        calls.reload(config(f'name: "mine" base_path: "{folder}/empty"'))
        assert calls.rest("mine") == 2 and calls.rest("new")[0] == 404


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_config_list {", ["1:19", "Expected"]),
        ("models {}", ["1:1", "models"]),
        ("", ["no model"]),
        (config('base_path: "BASE"'), ["no name"]),
        (config('name: "a" base_path: "BASE" model_platform: "torch"'), ["'a'", "model_platform", "'torch'"]),
        (config('name: "a" base_path: "models"'), ["'a'", "absolute", "'models'"]),
        (config('name: "a" base_path: "BASE"', 'name: "a" base_path: "BASE"'), ["two models", "'a'"]),
        (config('name: "a" base_path: "BASE" model_version_policy { specific {} }'), ["'a'", "specific"]),
        (config(*["""name: "a" base_path: "BASE" """] * 101), ["101 models: the limit is 100"]),
    ],
)
def test_errors_of_a_configuration_file(tmp_path, text, words):
    file = tmp_path / "models.config"
    file.write_text(text.replace("BASE", str(tmp_path)))
    with pytest.raises(InputError) as caught:
        Core(ServingOptions(model_config_file=str(file)))
    message = str(caught.value)
    assert message.startswith(f"{file}: ") and "\n" not in message
    assert all(word in message for word in words), message


def test_either_a_model_or_a_configuration_file_is_required(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.config: No such file"):
        Core(ServingOptions(model_config_file=str(tmp_path / "nowhere.config")))
    for folder, file in ((str(tmp_path), "models.config"), ("", "")):
        with pytest.raises(InputError, match="give either export_dir, .* or model_config_file"):
            ServingOptions(folder, model_config_file=file)
    with pytest.raises(InputError, match="name=mine: model_config_file determines the names"):
        ServingOptions(model_config_file="models.config", name="mine")


@pytest.mark.integration
def test_a_different_engine_serves_the_models_that_it_supports(folder, versions_1_and_2):
    file = folder / "models.config"
    models = [f'name: "{name}" base_path: "{folder}/{name}"' for name in ("both", "one")]
    file.write_text(config(*models))
    (folder / "odd").mkdir()
    (folder / "odd" / "3").symlink_to(versions_1_and_2 / "1")

    def substitutes(path):
        if path.parent.name == "odd":
            raise InputError("the engine cannot read it; --engine=tensorflow can")
        return {"single": lambda text: {"version": tf.fill(tf.shape(text), 100 * len(path.parent.name))}}

    options = ServingOptions(model_config_file=str(file), rest_port=0, grpc_port=0, poll_seconds=60)
    with serve_options(options, substitutes) as calls:
        assert [calls.rest(name) for name in ("both", "one", "both/versions/2")] == [400, 300, 400]
        # Adding a model that the engine does not support: the other models stay, and its status has the reason.
        with pytest.raises(grpc.RpcError, match=f"no version could be loaded for odd from {folder}/odd"):
            calls.reload(config(*models, f'name: "odd" base_path: "{folder}/odd"'))
        assert [calls.rest(name) for name in ("both", "one")] == [400, 300]
        assert calls.rest("odd") == (404, "Servable not found for request: Latest(odd)")
        status = calls.http.get(f"http://{calls.server.rest_address}/v1/models/odd")
        (state,) = status.json()["model_version_status"]
        assert (status.status_code, state["state"]) == (503, "END")
        assert "--engine=tensorflow can" in state["status"]["error_message"]
    file.write_text(config(*models, f'name: "odd" base_path: "{folder}/odd"'))
    server = Server(options, loader=Loader(substitutes))
    with pytest.raises(InputError, match="^odd: the engine cannot read it"):
        server.start()
