"""The server's settings."""

import dataclasses
import ipaddress
import pathlib
from collections.abc import Sequence

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a request; each is a flag of the same name of `launch.serve`.

    Attributes:
        max_body_bytes: bytes of a request's body, in JSON or as a gRPC message.
        max_sentences: rows of a request, which are the first dimension of its inputs.
        max_sentence_bytes: bytes of each string.
        max_input_length: numbers in a row of variable length, such as token ids; the work can grow with their square.
        max_output_elements: numbers and strings in all outputs of a request together.
    """

    max_body_bytes: int = 1 << 20
    max_sentences: int = 256
    max_sentence_bytes: int = 4096
    max_input_length: int = 1024
    max_output_elements: int = 1 << 23

    def __post_init__(self) -> None:
        _check_at_least(self, 1, *(field.name for field in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """The settings of a server.

    Attributes:
        export_dir: the directory of a model; each subdirectory with a number as its name is a version.
        model_config_file: in place of `export_dir` a file of TensorFlow Serving that names several models, a
            `ModelServerConfig` in protobuf's text format; read again when it changes.
        name: the model's name in requests; "" means the name of the directory.
        host: the address to listen at.
        allowed_hosts: names besides `host`, "localhost" and addresses, accepted in REST requests; "*" accepts all.
        rest_port: port of the REST interface; 0 means any free port.
        grpc_port: port of the gRPC interface; 0 means any free port.
        tls_certificate: file with the certificate (or chain) in PEM for both ports; "" means no TLS.
        tls_key: file with its key in PEM, without a password.
        api_key_file: file with a key on each line, one of which requests must carry, except those for health and
            states of models; "" means that none is needed.
        keep_alive_seconds: how long an idle connection of REST is kept after an answer; gateways keep theirs for 60 s.
        max_connections: most simultaneous connections to each interface, half of them from one address for REST, and
            most simultaneous gRPC calls.
        gateways: addresses, or networks such as 10.0.0.0/8, each address of which may have all connections of REST,
            because it hands on those of many clients.
        max_batch_size: most sentences of a batch; 1 disables merging.
        max_batch_bytes: most bytes of text in a batch; a single sentence may exceed it.
        num_streams: batches that run in parallel.
        max_queue_bytes: most bytes of waiting text, with an overhead per sentence; a single request may exceed it.
        max_unsent_bytes: most bytes of answers in memory that clients have not read yet; a single one may exceed it.
        max_growing: most answers that grow at a time (`:stream`): each keeps the state of its search in memory.
        cache_bytes: most bytes of answers that are kept, so that a sentence that was answered before is not run again;
            0 keeps none.
        request_seconds: longest time until a request is answered; then it is cancelled.
        poll_seconds: time between two checks for new versions.
        max_num_load_retries: how often loading a version is retried after a failure.
        load_retry_seconds: time from a failure to load to the next try.
        grace_seconds: time for pending requests when the server is stopped.
        limits: the limits of a request.

    Raises:
        InputError: a value is out of range.
    """

    export_dir: str = ""
    model_config_file: str = ""
    name: str = ""
    host: str = "127.0.0.1"
    allowed_hosts: Sequence[str] = ()
    rest_port: int = 8501
    grpc_port: int = 8500
    tls_certificate: str = ""
    tls_key: str = ""
    api_key_file: str = ""
    keep_alive_seconds: int = 75
    max_connections: int = 1000
    gateways: Sequence[str] = ()
    max_batch_size: int = 32
    max_batch_bytes: int = 8192
    num_streams: int = 1
    max_queue_bytes: int = 1 << 18
    max_unsent_bytes: int = 1 << 26
    max_growing: int = 32
    cache_bytes: int = 0
    request_seconds: float = 30.0
    poll_seconds: float = 2.0
    max_num_load_retries: int = 5
    load_retry_seconds: float = 60.0
    grace_seconds: float = 30.0
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        _check_at_least(
            self,
            1,
            *("keep_alive_seconds", "max_connections", "max_batch_size", "max_batch_bytes"),
            *("num_streams", "max_queue_bytes", "max_unsent_bytes", "max_growing"),
        )
        _check_at_least(
            self,
            0,
            *("rest_port", "grpc_port", "cache_bytes"),
            *("max_num_load_retries", "load_retry_seconds", "grace_seconds"),
        )
        for name in ("rest_port", "grpc_port"):
            if getattr(self, name) > 65535:
                raise InputError(f"{name} must be at most 65535, got {getattr(self, name)}")
        for name in ("poll_seconds", "request_seconds"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be above 0, got {getattr(self, name)}")
        for host in self.allowed_hosts:
            if not host or ":" in host or "/" in host:
                raise InputError(f"allowed_hosts must be names without ports, or '*'; got {host!r}")
        for gateway in self.gateways:
            try:
                ipaddress.ip_network(gateway)
            except ValueError as error:
                raise InputError(f"gateways must be addresses or networks, such as 10.0.0.0/8: {error}") from error
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise InputError("tls_certificate and tls_key go together: one of them is missing")
        if bool(self.export_dir) == bool(self.model_config_file):
            raise InputError("one of export_dir, the directory of a model, and model_config_file is needed, not both")
        if self.model_config_file:
            if self.name:
                raise InputError(f"name={self.name}: the models' names are those of model_config_file")
        elif not pathlib.Path(self.export_dir).is_dir():
            raise InputError(f"{self.export_dir}: no such directory")

    @property
    def model_name(self) -> str:
        """The name of the model of `export_dir` in requests."""
        return self.name or pathlib.Path(self.export_dir).resolve().name


def _check_at_least(settings: Limits | ServingOptions, least: int, *names: str) -> None:
    for name in names:
        if (value := getattr(settings, name)) < least:
            raise InputError(f"{name} must be at least {least}, got {value}")
