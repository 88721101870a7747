"""Describes the REST interface as an OpenAPI 3.1 document, from which tools can generate clients."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.export_contract import SERVING_DEFAULT
from t2t_keras.serving.http.fields import RequestField

Description = dict[str, Any]

# Possible causes of an error, by HTTP status.
_ERRORS: Mapping[int, str] = {
    400: "the named body, field, value or limit is invalid, or a label or signature does not exist",
    401: "the server requires a key, and the request has no valid key",
    403: "the host or the origin is not allowed",
    404: "the model or the version is not served",
    413: "the body is too large",
    501: "the model has no signature for the request",
    503: "the server is full (with Retry-After) or is stopping",
    504: "no answer within the server's time limit",
}
_MODEL_PATHS = {
    "/v1/models/{model}": "the served version",
    "/v1/models/{model}/versions/{version}": "one version",
    "/v1/models/{model}/labels/{label}": "the version with a label",
}


def describe(models: Sequence[str], fields: Sequence[RequestField] = ()) -> Description:
    """Returns the OpenAPI document of a server, as JSON-compatible objects.

    Args:
        models: names of the models.
        fields: the optional fields of requests.
    """
    paths: dict[str, Description] = {}
    for path, owner in _MODEL_PATHS.items():
        names = [name for name in ("model", "version", "label") if f"{{{name}}}" in path]
        shared = {"parameters": [_parameter(name, models) for name in names]}
        paths[f"{path}:predict"] = {**shared, "post": _call("predict", f"The outputs of a signature of {owner}.")}
        paths[f"{path}:stream"] = {**shared, "post": _call("stream", f"Events with the growing output of {owner}.")}
        summary = "The states of all versions." if path == "/v1/models/{model}" else f"The state of {owner}."
        state = _answer(summary, {"type": "object"}, (400, 403, 404, 503))
        paths[path] = {**shared, "get": state}
        signatures = _answer(f"The signatures of {owner}.", {"type": "object"}, (400, 401, 403, 404))
        paths[f"{path}/metadata"] = {**shared, "get": signatures}
    metrics = _answer("Metrics for Prometheus.", {"type": "string"}, (401, 403), "text/plain")
    paths["/monitoring/prometheus/metrics"] = {"get": metrics}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "t2t_keras",
            "version": "1",
            "description": "TensorFlow Serving's REST interface; names, types and shapes are in a model's metadata.",
        },
        "paths": paths,
        "components": {"schemas": {"Request": _request(fields), "Answer": _ANSWER, "Error": _ERROR}},
    }


def _parameter(name: str, models: Sequence[str]) -> Description:
    schemas = {"model": {"type": "string", "enum": list(models)}, "version": {"type": "integer", "minimum": 0}}
    return {"name": name, "in": "path", "required": True, "schema": schemas.get(name, {"type": "string"})}


def _call(method: str, summary: str) -> Description:
    answer: Description = {"$ref": "#/components/schemas/Answer"}
    kind = "application/json"
    if method == "stream":
        kind = "text/event-stream"
        answer = {"type": "string", "description": "events with an Answer each; the last is named end, or error"}
    request = {"$ref": "#/components/schemas/Request"}
    body = {"required": True, "content": {"application/json": {"schema": request}}}
    return {**_answer(summary, answer, tuple(_ERRORS), kind), "requestBody": body}


def _answer(summary: str, schema: Description, errors: Sequence[int], kind: str = "application/json") -> Description:
    """Returns an OpenAPI operation with its successful response and its possible errors."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    error_responses = {str(status): {"description": _ERRORS[status], "content": error} for status in errors}
    responses = {"200": {"description": summary, "content": {kind: {"schema": schema}}}, **error_responses}
    return {"summary": summary, "responses": responses}


def _request(fields: Sequence[RequestField]) -> Description:
    optional: dict[str, Description] = {}
    # Automatic fields come last, because other fields may accept theirs.
    for field in sorted(fields, key=lambda field: bool(field.automatic_for)):
        for name, schema in ((field.name, field.schema), *field.refinements.items()):
            limit = "" if field.automatic_for else "only for predict: "
            optional[name] = {**schema, "description": limit + schema["description"]}
    return {**_REQUEST, "properties": {**_REQUEST["properties"], **optional}}


_REQUEST: Description = {
    "type": "object",
    "properties": {
        "signature_name": {"type": "string", "default": SERVING_DEFAULT},
        "instances": {
            "type": "array",
            "description": "one element per row: the value of the only input, or an object of all inputs",
            "examples": [["A dog runs."]],
        },
        "inputs": {
            "description": "an object with a list for each input, or the list of the only one",
            "examples": [{"text": ["A dog runs."]}],
        },
    },
    "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
    "additionalProperties": False,
}
_ANSWER: Description = {
    "type": "object",
    "properties": {
        "predictions": {"type": "array", "description": "for instances: one element per row"},
        "outputs": {"description": "for inputs: an object with a list for each output, or the list of the only one"},
    },
    "oneOf": [{"required": ["predictions"]}, {"required": ["outputs"]}],
}
_ERROR: Description = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
