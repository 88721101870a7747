"""Translates lines of standard input through the gRPC interface of TensorFlow Serving or of launch.serve.

    python launch/cluster/serving/client_grpc.py --server=127.0.0.1:8500 --model=translation < sentences.txt
    python launch/cluster/serving/client_grpc.py --server=HOST:8500 --ca=chain.pem --key_file=key.txt < sentences.txt

Prints one translation per line; --score adds a tab and its score. The program needs tensorflow-serving-api, but not
this project.
"""

import argparse
import contextlib
import io
import itertools
import os
import pathlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Discards the output of libraries on standard error."""
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)


# The protos import TensorFlow, whose start-up notices are not useful here.
with _without_notices():
    import grpc
    from tensorflow.core.framework import types_pb2
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def translate(
    service: prediction_service_pb2_grpc.PredictionServiceStub,
    model: str,
    sentences: list[str],
    seconds: float,
    metadata: list[tuple[str, str]],
) -> list[tuple[str, float]]:
    """Translates at most the server's `max_batch_size` sentences; returns translations with scores."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    text = request.inputs["text"]
    text.dtype = types_pb2.DT_STRING
    text.tensor_shape.dim.add(size=len(sentences))
    text.string_val.extend(sentence.encode() for sentence in sentences)
    outputs = service.Predict(request, timeout=seconds, metadata=metadata).outputs
    translations = [value.decode() for value in outputs["translation"].string_val]
    # A TensorProto stores numbers one by one or as bytes.
    scores = outputs["score"].float_val or memoryview(outputs["score"].tensor_content).cast("f")
    return list(zip(translations, scores, strict=True))


def connected(server: str, ca: str | None) -> grpc.Channel:
    """Returns a channel to the server, with TLS if `ca` is a file of trusted certificates."""
    if ca is None:
        return grpc.insecure_channel(server)
    return grpc.secure_channel(server, grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes()))


def main() -> int:
    """Translates standard input; returns 1 if a request fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:8500", help="host:port of its gRPC interface")
    parser.add_argument("--model", default="translation", help="the name of the served model")
    parser.add_argument("--ca", help="for TLS: file of trusted certificates, in PEM")
    parser.add_argument("--key_file", help="file whose first line is a key of --api_key_file")
    parser.add_argument(
        "--batch", type=int, default=32, help="sentences per request; at most the server's max_batch_size"
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for an answer")
    parser.add_argument("--score", action="store_true", help="also print scores")
    flags = parser.parse_args()
    if flags.batch < 1:
        parser.error(f"--batch must be at least 1, got {flags.batch}")
    if not 0 < flags.timeout < float("inf"):
        parser.error(f"--timeout must be a finite number above 0, got {flags.timeout}")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    metadata: list[tuple[str, str]] = []
    if flags.key_file:
        keys = pathlib.Path(flags.key_file).read_text("ascii").split()
        if not keys:
            parser.error(f"--key_file={flags.key_file}: the file contains no key")
        metadata.append(("authorization", f"Bearer {keys[0]}"))
    with connected(flags.server, flags.ca) as channel:
        service = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        lines = (line.rstrip("\r\n") for line in sys.stdin)
        while sentences := list(itertools.islice(lines, flags.batch)):
            try:
                answers = translate(service, flags.model, sentences, flags.timeout, metadata)
            except grpc.RpcError as error:
                print(f"error: {flags.server}: {error.code().name}: {error.details()}", file=sys.stderr)
                return 1
            for translation, score in answers:
                print(f"{translation}\t{score:.4f}" if flags.score else translation)
    return 0


if __name__ == "__main__":
    sys.exit(main())
