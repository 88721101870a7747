"""Serves an exported model with TensorFlow Serving's own REST and gRPC interfaces, for machines without it.

New versions are loaded while it runs. SIGTERM or Ctrl-C stops it once it has answered pending requests.

Examples:
    python -m launch.serve --export_dir=saved_models/mine
    python -m launch.serve --export_dir=saved_models/mine --rest_port=8501 --grpc_port=8500 --host=0.0.0.0
    curl -d '{"instances": ["A man plays."]}' http://127.0.0.1:8501/v1/models/mine:predict
"""

import contextlib
import dataclasses
import faulthandler
import logging
import os
import queue
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from . import program, quiet_tensorflow  # isort: skip  (before anything imports TensorFlow)

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.machine import streams
from t2t_keras.serving.options import Limits, ServingOptions

if TYPE_CHECKING:
    from t2t_keras.serving.server import Server

# gRPC writes lines of its own about what this program says in words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Files that the process has open besides connections: libraries, the model, the log.
_OTHER_FILES = 200

_EXPORT_DIR = flags.DEFINE_string("export_dir", None, "Directory of a model: a version in each numbered subdirectory.")
_NAME = flags.DEFINE_string("name", "", "The model's name in requests; default: the name of its directory.")
_HOST = flags.DEFINE_string("host", ServingOptions.host, "Address to listen at; 0.0.0.0 is every one of the machine.")
_ALLOWED_HOSTS = flags.DEFINE_list(
    "allowed_hosts",
    [],
    "Names that REST requests may ask for besides --host, localhost and addresses, with commas between; *: any.",
)
_REST_PORT = flags.DEFINE_integer("rest_port", ServingOptions.rest_port, "Port for REST; 0: any that is free.")
_GRPC_PORT = flags.DEFINE_integer("grpc_port", ServingOptions.grpc_port, "Port for gRPC; 0: any that is free.")
_MAX_CONNECTIONS = flags.DEFINE_integer(
    "max_connections",
    ServingOptions.max_connections,
    "For REST, half of them of one address, and as many for gRPC; more are refused.",
)
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size", ServingOptions.max_batch_size, "Sentences that are run together at most; 1 merges nothing."
)
_MAX_BATCH_BYTES = flags.DEFINE_integer(
    "max_batch_bytes", ServingOptions.max_batch_bytes, "Of text that is run together at most, and 32 a sentence."
)
_BATCH_WAIT_MS = flags.DEFINE_float(
    "batch_wait_ms", ServingOptions.batch_wait_ms, "How long the first sentence of a batch waits for others, at most."
)
_NUM_STREAMS = flags.DEFINE_integer("num_streams", None, "Batches that run side by side; default: one a core.")
_MAX_QUEUE_BYTES = flags.DEFINE_integer(
    "max_queue_bytes", ServingOptions.max_queue_bytes, "Of text that waits, and 32 a sentence; more is refused."
)
_MAX_UNSENT_BYTES = flags.DEFINE_integer(
    "max_unsent_bytes", ServingOptions.max_unsent_bytes, "Of large answers that clients have not read; more get 503."
)
_REQUEST_SECONDS = flags.DEFINE_float(
    "request_seconds", ServingOptions.request_seconds, "What a request has until its answer; then it is given up."
)
_MAX_BODY_BYTES = flags.DEFINE_integer("max_body_bytes", Limits.max_body_bytes, "Of a request, JSON or gRPC.")
_MAX_SENTENCES = flags.DEFINE_integer("max_sentences", Limits.max_sentences, "Of a request.")
_MAX_SENTENCE_BYTES = flags.DEFINE_integer("max_sentence_bytes", Limits.max_sentence_bytes, "Of each string.")
_MAX_INPUT_LENGTH = flags.DEFINE_integer(
    "max_input_length", Limits.max_input_length, "Numbers in a row of an input of any length, such as token ids."
)
_MAX_OUTPUT_ELEMENTS = flags.DEFINE_integer(
    "max_output_elements", Limits.max_output_elements, "Numbers and strings in all outputs of a request."
)
_POLL_SECONDS = flags.DEFINE_float("poll_seconds", ServingOptions.poll_seconds, "Between two looks for new versions.")
_MAX_NUM_LOAD_RETRIES = flags.DEFINE_integer(
    "max_num_load_retries", ServingOptions.max_num_load_retries, "How often a version that cannot be loaded is retried."
)
_LOAD_RETRY_SECONDS = flags.DEFINE_float(
    "load_retry_seconds", ServingOptions.load_retry_seconds, "From a failure to load a version to the next try."
)
_GRACE_SECONDS = flags.DEFINE_float(
    "grace_seconds", ServingOptions.grace_seconds, "What requests in flight have left when told to stop."
)


def main(argv: list[str]) -> None:
    """Serves until it is stopped by a signal."""
    del argv  # every setting is a flag
    options = _options()
    # Signal handlers interrupt the main thread anywhere: a `SimpleQueue` allows that, an event or a lock might not.
    heard: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: heard.put("stop"))
    _log_to_stderr()
    options = _within_files(options)
    server = _server(options)
    # Signals do not interrupt the loading of a model, so it must not run in the main thread.
    threading.Thread(target=_start, args=(server, heard), name="start", daemon=True).start()
    outcome = _next(heard)
    if isinstance(outcome, Exception):
        raise outcome
    if outcome == "stop":
        _end("stopped before a version was loaded")
    version = server.core.versions.served
    what = f"version {version}" if version is not None else "no version yet, waiting for one"
    _say(f"serving {options.model_name} ({what}): REST at http://{server.rest_address}, gRPC at {server.grpc_address}")
    _next(heard)
    in_time = server.stop()
    message = "stopped" if in_time else f"stopped; not all was answered within {options.grace_seconds:g} s"
    if in_time and not server.core.is_loading:
        _say(message)
    else:
        _end(message)


def _next(heard: "queue.SimpleQueue[str | Exception]") -> str | Exception:
    """Waits, and wakes each second: a signal that some library's thread receives does not interrupt this one."""
    while True:
        with contextlib.suppress(queue.Empty):
            return heard.get(timeout=1)


def _say(message: str) -> None:
    """Prints a line, or not: a server goes on although the disk under its output is full or its reader is gone."""
    with contextlib.suppress(OSError):
        os.write(1, f"{message}\n".encode())


def _start(server: "Server", heard: "queue.SimpleQueue[str | Exception]") -> None:
    try:
        server.start()
    except Exception as error:
        heard.put(error)
    else:
        heard.put("started")


def _end(message: str) -> NoReturn:
    """Ends at once: Python would wait for running threads, and TensorFlow must not be torn down while they use it."""
    _say(message)
    sys.stderr.flush()
    os._exit(0)


def _options() -> ServingOptions:
    if not _EXPORT_DIR.value:
        raise InputError("--export_dir is needed: the directory of a model with its versions")
    streams.share_out_cores(_NUM_STREAMS.value)
    return ServingOptions(
        export_dir=_EXPORT_DIR.value,
        name=_NAME.value,
        host=_HOST.value,
        allowed_hosts=tuple(_ALLOWED_HOSTS.value),
        rest_port=_REST_PORT.value,
        grpc_port=_GRPC_PORT.value,
        max_connections=_MAX_CONNECTIONS.value,
        max_batch_size=_MAX_BATCH_SIZE.value,
        max_batch_bytes=_MAX_BATCH_BYTES.value,
        batch_wait_ms=_BATCH_WAIT_MS.value,
        num_streams=streams.num_streams() if _NUM_STREAMS.value is None else _NUM_STREAMS.value,
        max_queue_bytes=_MAX_QUEUE_BYTES.value,
        max_unsent_bytes=_MAX_UNSENT_BYTES.value,
        request_seconds=_REQUEST_SECONDS.value,
        poll_seconds=_POLL_SECONDS.value,
        max_num_load_retries=_MAX_NUM_LOAD_RETRIES.value,
        load_retry_seconds=_LOAD_RETRY_SECONDS.value,
        grace_seconds=_GRACE_SECONDS.value,
        limits=Limits(
            max_body_bytes=_MAX_BODY_BYTES.value,
            max_sentences=_MAX_SENTENCES.value,
            max_sentence_bytes=_MAX_SENTENCE_BYTES.value,
            max_input_length=_MAX_INPUT_LENGTH.value,
            max_output_elements=_MAX_OUTPUT_ELEMENTS.value,
        ),
    )


def _within_files(options: ServingOptions) -> ServingOptions:
    """The options with as many connections as the process may have files, whose limit is raised as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * options.max_connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return options
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == needed:
        return options
    allowed = (limit - _OTHER_FILES) // 2
    if allowed < 1:
        raise InputError(f"this process may open {limit} files, which are too few for a server: raise ulimit -n")
    logging.getLogger("t2t_keras.serving").warning(
        "this process may open %d files: %d connections for each of REST and gRPC, not max_connections=%d",
        *(limit, allowed, options.max_connections),
    )
    return dataclasses.replace(options, max_connections=allowed)


def _log_to_stderr() -> None:
    # A separate descriptor, because what libraries write to the original is held back while a version is loaded.
    stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    faulthandler.enable(stderr)
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("t2t_keras.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _server(options: ServingOptions) -> "Server":
    """The server, whose packages are an optional extra."""
    try:
        from t2t_keras.serving.server import Server
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is missing: pip install '.[serve]'") from error
    return Server(options, around_load=quiet_tensorflow.without_notices)


def run() -> None:
    """The console command."""
    program.run(main)


if __name__ == "__main__":
    run()
