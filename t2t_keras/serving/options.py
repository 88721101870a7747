"""The server's settings."""

import dataclasses
import ipaddress
import pathlib

from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeFloat, NonNegativeInt, Port, PositiveFloat, PositiveInt, check_fields


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on a request. `launch.serve` has a flag of the same name for each one.

    Attributes:
        max_body_bytes: maximum size of a request's body, in JSON or as a gRPC message.
        max_sentences: maximum number of rows in a request, the first dimension of its inputs.
        max_sentence_bytes: maximum size of each string.
        max_input_length: maximum number of values, such as token ids, in a row of variable length; the work can grow
            with the square of the length.
        max_output_elements: maximum number of values and strings in all outputs of a request together.

    Raises:
        InputError: a limit is not a positive number.
    """

    max_body_bytes: PositiveInt = 1 << 20
    max_sentences: PositiveInt = 256
    max_sentence_bytes: PositiveInt = 4096
    max_input_length: PositiveInt = 1024
    max_output_elements: PositiveInt = 1 << 23

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """The settings of a server.

    Attributes:
        export_dir: directory of a model; each subdirectory whose name is a number is a version.
        model_config_file: file that lists several models, instead of `export_dir`: TensorFlow Serving's
            `ModelServerConfig` in protobuf text format; it is reloaded when it changes.
        name: name of the model in requests; "" means the name of the directory.
        host: address to listen on.
        allowed_hosts: host names accepted in REST requests, besides `host`, "localhost" and IP addresses; "*" accepts
            all.
        rest_port: port of the REST interface; 0 means any free port.
        grpc_port: port of the gRPC interface; 0 means any free port.
        tls_certificate: PEM file with the certificate (or chain) for both ports; "" disables TLS.
        tls_key: PEM file with the certificate's private key, without a password.
        api_key_file: file with one API key per line; requests must carry one of them, except health checks and queries
            of a model's status; "" disables the check.
        keep_alive_seconds: how long an idle REST connection is kept open after a response; proxies usually keep theirs
            for 60 s.
        max_connections: maximum number of concurrent connections to each interface, and of concurrent gRPC calls; a
            REST client address may use half of the connections.
        gateways: addresses, or networks such as 10.0.0.0/8, of proxies that forward many clients; each of these
            addresses may use all REST connections.
        max_batch_size: maximum number of sentences in a batch; 1 disables batching.
        max_batch_bytes: maximum bytes of text in a batch; a single sentence may exceed it.
        num_streams: number of batches that run in parallel.
        max_queue_bytes: maximum bytes of queued text, including an overhead per sentence; a single request may exceed
            it.
        max_unsent_bytes: maximum bytes of large responses held in memory until clients have read them; a single
            response may exceed it.
        max_stream_requests: maximum number of concurrent `:stream` requests; each one keeps its search state in memory.
        cache_bytes: maximum size of the cache of outputs, which spares repeated sentences a second run; 0 disables the
            cache.
        request_seconds: time limit of a request; after that, the request is cancelled.
        poll_seconds: interval between checks for new versions.
        max_num_load_retries: number of retries after a version fails to load.
        load_retry_seconds: time between a failure to load a version and the next attempt.
        grace_seconds: time that pending requests have to finish when the server stops.
        limits: limits on a request.

    Raises:
        InputError: a value is invalid or out of range, options conflict, or `export_dir` is not a directory.
    """

    export_dir: str = ""
    model_config_file: str = ""
    name: str = ""
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    rest_port: Port = 8501
    grpc_port: Port = 8500
    tls_certificate: str = ""
    tls_key: str = ""
    api_key_file: str = ""
    keep_alive_seconds: PositiveInt = 75
    max_connections: PositiveInt = 1000
    gateways: tuple[str, ...] = ()
    max_batch_size: PositiveInt = 32
    max_batch_bytes: PositiveInt = 8192
    num_streams: PositiveInt = 1
    max_queue_bytes: PositiveInt = 1 << 18
    max_unsent_bytes: PositiveInt = 1 << 26
    max_stream_requests: PositiveInt = 32
    cache_bytes: NonNegativeInt = 0
    request_seconds: PositiveFloat = 30.0
    poll_seconds: PositiveFloat = 2.0
    max_num_load_retries: NonNegativeInt = 5
    load_retry_seconds: NonNegativeFloat = 60.0
    grace_seconds: NonNegativeFloat = 30.0
    limits: Limits = dataclasses.field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_fields(self)
        for host in self.allowed_hosts:
            if not host or ":" in host or "/" in host:
                raise InputError(f"allowed_hosts must be names without ports, or '*'; got {host!r}")
        for gateway in self.gateways:
            try:
                ipaddress.ip_network(gateway)
            except ValueError as error:
                raise InputError(f"gateways must be addresses or networks, such as 10.0.0.0/8: {error}") from error
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise InputError("tls_certificate and tls_key must be given together: one of them is missing")
        if bool(self.export_dir) == bool(self.model_config_file):
            raise InputError("give either export_dir, the directory of a model, or model_config_file")
        if self.model_config_file:
            if self.name:
                raise InputError(f"name={self.name}: model_config_file determines the names of models")
        elif not pathlib.Path(self.export_dir).is_dir():
            raise InputError(f"{self.export_dir}: no such directory")

    @property
    def model_name(self) -> str:
        """The name in requests of the model in `export_dir`."""
        return self.name or pathlib.Path(self.export_dir).resolve().name
