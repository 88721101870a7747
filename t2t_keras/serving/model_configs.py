"""Parses TensorFlow Serving's `ModelServerConfig`, which lists the models to serve.

Reference: https://www.tensorflow.org/tfx/serving/serving_config
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Mapping

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from t2t_keras.errors import InputError

_MAX_MODELS = 100


@dataclasses.dataclass(frozen=True)
class VersionPolicy:
    """Selects the versions of a model to serve.

    Attributes:
        max_versions: maximum number of versions to serve, the latest loadable ones first; None means no maximum.
        specific: numbers of the versions that may be served; None means any.
    """

    max_versions: int | None = 1
    specific: frozenset[int] | None = None

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Returns the versions that may be served, the latest first."""
        return sorted((v for v in versions if self.specific is None or v in self.specific), reverse=True)


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Settings of one served model.

    Attributes:
        name: name of the model in requests.
        base_path: directory of the model. Each subdirectory whose name is a number is a version.
        policy: selects the versions to serve.
        labels: version number by label.
    """

    name: str
    base_path: str
    policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)


def parse_model_configs(text: str, place: str) -> tuple[ModelSettings, ...]:
    """Parses a `ModelServerConfig` in protobuf text format.

    Args:
        text: the configuration.
        place: file that the text comes from, which begins each error message.

    Raises:
        InputError: the configuration is invalid.
    """
    try:
        config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    except text_format.ParseError as error:
        raise InputError(f"{place}: {' '.join(str(error).split())}") from error
    return model_settings(config, place)


def model_settings(config: model_server_config_pb2.ModelServerConfig, place: str) -> tuple[ModelSettings, ...]:
    """Returns the models in a `ModelServerConfig`.

    Args:
        config: the parsed configuration.
        place: source of the configuration, which begins each error message.

    Raises:
        InputError: the configuration is invalid.
    """
    if config.WhichOneof("config") == "custom_model_config":
        raise InputError(f"{place}: custom_model_config is not supported; use model_config_list")
    entries = config.model_config_list.config
    if not entries:
        raise InputError(f"{place}: model_config_list has no model")
    # Limited because each model has a thread that watches its directory.
    if len(entries) > _MAX_MODELS:
        raise InputError(f"{place}: {len(entries)} models: the limit is {_MAX_MODELS}")
    models = [_settings(model, place) for model in entries]
    ((name, count),) = collections.Counter(model.name for model in models).most_common(1)
    if count > 1:
        raise InputError(f"{place}: two models have the name {name!r}")
    return tuple(models)


def _settings(config: model_server_config_pb2.ModelConfig, place: str) -> ModelSettings:
    if not config.name:
        raise InputError(f"{place}: a model has no name")
    place = f"{place}: model {config.name!r}"
    if config.model_platform not in ("", "tensorflow"):
        raise InputError(f"{place}: model_platform must be 'tensorflow', got {config.model_platform!r}")
    if not os.path.isabs(config.base_path):
        raise InputError(f"{place}: base_path must be absolute, got {config.base_path!r}")
    if not os.path.isdir(config.base_path):
        raise InputError(f"{place}: base_path {config.base_path}: no such directory")
    return ModelSettings(config.name, config.base_path, _policy(config, place), dict(config.version_labels))


def _policy(config: model_server_config_pb2.ModelConfig, place: str) -> VersionPolicy:
    policy = config.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy(max_versions=None)
        case "specific":
            if not policy.specific.versions:
                raise InputError(f"{place}: model_version_policy: specific has no versions")
            return VersionPolicy(max_versions=None, specific=frozenset(policy.specific.versions))
    # As in TensorFlow Serving, an unset number means 1.
    return VersionPolicy(max_versions=policy.latest.num_versions or 1)
