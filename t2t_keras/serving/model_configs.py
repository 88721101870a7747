"""Which models a server has, as TensorFlow Serving's `ModelServerConfig` says it.

Reference: https://www.tensorflow.org/tfx/serving/serving_config
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Mapping

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from t2t_keras.errors import InputError

_MOST_MODELS = 100


@dataclasses.dataclass(frozen=True)
class VersionPolicy:
    """Which versions of a model are served.

    Attributes:
        most: so many of the latest that can be loaded; None means all.
        specific: only versions with these numbers; None means any.
    """

    most: int | None = 1
    specific: frozenset[int] | None = None

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Those of the versions that may be served, the latest first."""
        return sorted((v for v in versions if self.specific is None or v in self.specific), reverse=True)


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """A model that is served.

    Attributes:
        name: its name in requests.
        base_path: the directory whose subdirectories with numbers as names are its versions.
        policy: which of them are served.
        labels: the number of the version that each label stands for.
    """

    name: str
    base_path: str
    policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)


def parse_model_configs(text: str, where: str) -> tuple[ModelSettings, ...]:
    """Reads a `ModelServerConfig` in protobuf's text format; an `InputError` begins with `where`, its file."""
    try:
        config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    except text_format.ParseError as error:
        raise InputError(f"{where}: {' '.join(str(error).split())}") from error
    return model_settings(config, where)


def model_settings(config: model_server_config_pb2.ModelServerConfig, where: str) -> tuple[ModelSettings, ...]:
    """Returns the models of a `ModelServerConfig`; an `InputError` begins with `where`, the place it comes from."""
    if config.WhichOneof("config") == "custom_model_config":
        raise InputError(f"{where}: custom_model_config is not served, only model_config_list")
    given = config.model_config_list.config
    if not given:
        raise InputError(f"{where}: model_config_list has no model")
    # Each model has a thread that follows its directory.
    if len(given) > _MOST_MODELS:
        raise InputError(f"{where}: {len(given)} models: there may be {_MOST_MODELS}")
    models = [_settings(model, where) for model in given]
    ((name, count),) = collections.Counter(model.name for model in models).most_common(1)
    if count > 1:
        raise InputError(f"{where}: two models have the name {name!r}")
    return tuple(models)


def _settings(config: model_server_config_pb2.ModelConfig, where: str) -> ModelSettings:
    if not config.name:
        raise InputError(f"{where}: a model has no name")
    where = f"{where}: model {config.name!r}"
    if config.model_platform not in ("", "tensorflow"):
        raise InputError(f"{where}: model_platform must be 'tensorflow', got {config.model_platform!r}")
    if not os.path.isabs(config.base_path):
        raise InputError(f"{where}: base_path must be absolute, got {config.base_path!r}")
    if not os.path.isdir(config.base_path):
        raise InputError(f"{where}: base_path {config.base_path}: no such directory")
    return ModelSettings(config.name, config.base_path, _policy(config, where), dict(config.version_labels))


def _policy(config: model_server_config_pb2.ModelConfig, where: str) -> VersionPolicy:
    policy = config.model_version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy(most=None)
        case "specific":
            if not policy.specific.versions:
                raise InputError(f"{where}: model_version_policy: specific has no versions")
            return VersionPolicy(most=None, specific=frozenset(policy.specific.versions))
    # As in TensorFlow Serving, no number is one.
    return VersionPolicy(most=policy.latest.num_versions or 1)
