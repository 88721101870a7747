"""Serves an exported model with the REST and gRPC interfaces of TensorFlow Serving, for machines without that server.

The server loads new versions while it runs. SIGTERM or Ctrl-C stops it after it has answered pending requests.

Examples:
    python -m launch.serve --export_dir=saved_models/mine
    python -m launch.serve --export_dir=saved_models/mine --rest_port=8501 --grpc_port=8500 --host=0.0.0.0
    python -m launch.serve --export_dir=saved_models/mine --engine=ctranslate2 --compute_type=int8
    curl -d '{"instances": ["A man plays."]}' http://127.0.0.1:8501/v1/models/mine:predict
"""

import contextlib
import dataclasses
import datetime
import faulthandler
import json
import logging
import os
import pathlib
import queue
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.export_contract import GRAPH_FILE
from t2t_keras.machine import heaps
from t2t_keras.machine.notices import without_notices
from t2t_keras.machine.processor import num_cores
from t2t_keras.serving.options import Limits, ServingOptions
from t2t_keras.values import PositiveInt

from . import program, remote_paths
from .flag_groups import engine_flags, setting_flags
from .flag_types import FOLDER, DEFINE_number, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.serving.http.glossed import ReadTexts
    from t2t_keras.serving.served_models import Substitutes
    from t2t_keras.serving.server import Server

# gRPC would log errors that this program reports itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Number of open files besides connections: libraries, the model, the log.
_OTHER_FILES = 200

_EXPORT_DIR = DEFINE_path("export_dir", None, "Directory of a model, with numbered subdirectories of versions.", FOLDER)
_NUM_STREAMS = DEFINE_number("num_streams", None, "Number of parallel batches; default: one per core.", PositiveInt)
_LOG_FORMAT = flags.DEFINE_enum("log_format", "text", ["text", "json"], "Format of the log; json: one object per line.")
_OPTIONS = setting_flags.define_files(ServingOptions, "model_config_file", "tls_certificate", "tls_key", "api_key_file")
_OPTIONS += setting_flags.define_usual(
    ServingOptions,
    *("name", "host", "allowed_hosts", "rest_port", "grpc_port"),
    *("max_connections", "gateways", "keep_alive_seconds"),
    *("max_batch_size", "max_batch_bytes", "max_queue_bytes", "max_unsent_bytes"),
    *("max_stream_requests", "cache_bytes", "request_seconds", "poll_seconds"),
    *("max_num_load_retries", "load_retry_seconds", "grace_seconds"),
)
flags.adopt_module_key_flags(engine_flags)
program.REMOTE |= {"export_dir": remote_paths.served}
_LIMITS = setting_flags.define_usual(Limits, *(field.name for field in dataclasses.fields(Limits)))


class _JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object with "time" in UTC, "level", "message" and, for an exception, "traceback"."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def main(argv: list[str]) -> None:
    """Serves until a signal stops the program."""
    heaps.one_for_each_thread()
    options = _options()
    # Signal handlers interrupt the main thread anywhere, which a `SimpleQueue` allows; an event or a lock might not.
    messages: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: messages.put("stop"))
    _log_to_stderr()
    _check_folder(options.export_dir)
    options = _limit_connections(options)
    server = _server(options)
    # Signals do not interrupt the loading of a model, so the model must not be loaded in the main thread.
    threading.Thread(target=_start, args=(server, messages), name="start", daemon=True).start()
    outcome = _next(messages)
    if isinstance(outcome, Exception):
        raise outcome
    if outcome == "stop":
        _end("stopped before a version was loaded")
    scheme = "https" if options.tls_certificate else "http"
    _say(f"serving {_models(server)}: REST at {scheme}://{server.rest_address}, gRPC at {server.grpc_address}")
    _next(messages)
    is_complete = server.stop()
    _end("stopped" if is_complete else f"stopped; some requests were not answered within {options.grace_seconds:g} s")


def _models(server: "Server") -> str:
    """Returns the models and their latest versions, for the line that the program prints."""
    models = server.core.models
    latest = {name: versions.served for name in models.names if (versions := models.get(name))}
    return ", ".join(
        f"{name} ({'no version yet, waiting for one' if version is None else f'version {version}'})"
        for name, version in latest.items()
    )


def _next(messages: "queue.SimpleQueue[str | Exception]") -> str | Exception:
    """Waits, and wakes every second, because a signal that a library's thread receives does not interrupt this one."""
    while True:
        with contextlib.suppress(queue.Empty):
            return messages.get(timeout=1)


def _say(message: str) -> None:
    """Prints a line, if possible: a server continues even if its disk is full or the reader of its output is gone."""
    if _LOG_FORMAT.value == "json":
        message = _JsonFormatter().format(logging.makeLogRecord({"levelname": "INFO", "msg": message}))
    with contextlib.suppress(OSError):
        os.write(1, f"{message}\n".encode())


def _start(server: "Server", messages: "queue.SimpleQueue[str | Exception]") -> None:
    try:
        server.start()
    except Exception as error:
        messages.put(error)
    else:
        messages.put("started")


def _end(message: str) -> NoReturn:
    """Ends at once: Python would wait for running threads, and would take seconds to release TensorFlow."""
    _say(message)
    sys.stderr.flush()
    os._exit(0)


def _options() -> ServingOptions:
    values = setting_flags.values(_OPTIONS)
    if not _EXPORT_DIR.value and not values["model_config_file"]:
        raise InputError("give --export_dir, the directory of a model with its versions, or --model_config_file")
    engine_flags.engine()  # like the next line, raises before anything is loaded
    engine_flags.protection()
    values["export_dir"] = _EXPORT_DIR.value or ""
    values["num_streams"] = num_cores() if _NUM_STREAMS.value is None else _NUM_STREAMS.value
    return ServingOptions(**values, limits=Limits(**setting_flags.values(_LIMITS)))


def _check_folder(export_dir: str) -> None:
    """Rejects a SavedModel, and a folder that has versions only in its subfolders; names the folder to give."""
    folder = pathlib.Path(export_dir)
    if not export_dir or not folder.is_dir() or any(entry.name.isdecimal() for entry in folder.iterdir()):
        return
    models = []
    if (folder / GRAPH_FILE).is_file():
        if not folder.absolute().name.isdecimal():
            raise InputError(f"--export_dir={export_dir} is a single SavedModel; move its files to {folder / '1'}")
        models = [folder.absolute().parent]
    for pattern in ("*", "serving/*"):  # `launch.fit` exports to the latter
        models += sorted({each.parents[1] for each in folder.glob(f"{pattern}/[0-9]*/{GRAPH_FILE}")})
    if models:
        raise InputError(f"--export_dir={export_dir} contains no numbered versions; give --export_dir={models[0]}")


def _limit_connections(options: ServingOptions) -> ServingOptions:
    """Raises the limit of open files as far as needed and possible; returns options whose connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_needed = 2 * options.max_connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= num_needed:
        return options
    limit = num_needed if hard == resource.RLIM_INFINITY else min(num_needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == num_needed:
        return options
    num_allowed = (limit - _OTHER_FILES) // 2
    if num_allowed < 1:
        raise InputError(f"this process may open {limit} files, which is not enough for a server; raise ulimit -n")
    logging.getLogger("t2t_keras.serving").warning(
        "this process may open %d files, which allow %d connections each for REST and gRPC, not max_connections=%d",
        *(limit, num_allowed, options.max_connections),
    )
    return dataclasses.replace(options, max_connections=num_allowed)


def _log_to_stderr() -> None:
    # A separate descriptor, because the output of libraries to the original is held back while a version is loaded.
    stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    faulthandler.enable(stderr)
    handler = logging.StreamHandler(stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if _LOG_FORMAT.value == "json" else plain)
    logger = logging.getLogger("t2t_keras.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _server(options: ServingOptions) -> "Server":
    """Returns the server, whose packages are an optional extra."""
    from t2t_keras.machine.streams import share_out_cores

    share_out_cores(options.num_streams)
    try:
        from t2t_keras.serving.http.glossed import GlossaryField
        from t2t_keras.serving.http.marked import MarkupField
        from t2t_keras.serving.http.protected import Protection, ProtectionField
        from t2t_keras.serving.served_models import Loader, no_substitutes
        from t2t_keras.serving.server import Server
        from t2t_keras.serving.version_readers import VersionReaders
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is missing: pip install '.[serve]'") from error
    substitutes = no_substitutes if engine_flags.ENGINE.value == "tensorflow" else _ctranslate2()
    loader = Loader(substitutes, without_notices)
    # Imported before the first request, which would wait for it.
    from t2t_keras.inference.served_markup import ServedDocuments
    from t2t_keras.inference.served_protection import ServedProtection

    changes = engine_flags.protection()
    protections: VersionReaders[Protection] = VersionReaders(lambda version: ServedProtection(version, changes))
    glossaries = GlossaryField(lambda version: _glossary_reader(version, changes))
    return Server(
        options, loader, [MarkupField(ServedDocuments, protections), glossaries, ProtectionField(protections)]
    )


def _glossary_reader(version: pathlib.Path, changes: dict[str, Any]) -> "ReadTexts":
    from t2t_keras.inference.served_terms import ServedTerms  # imports Keras, which takes seconds

    return ServedTerms(version, changes)


def _ctranslate2() -> "Substitutes":
    """Returns the signatures that replace those of an export's graph."""
    from t2t_keras.export.ctranslate2_signatures import CTranslate2Signatures  # imports Keras, which takes seconds

    return CTranslate2Signatures(engine_flags.COMPUTE_TYPE.value)


run = program.command(main)
