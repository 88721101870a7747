"""Runs a program's `main`: parses the flags, prints an error on one line, sets the exit status."""

import contextlib
import functools
import os
import platform
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import IO, Any, NoReturn

# Before TensorFlow is imported, because its start-up notices are of no use to users.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Take only the GPU memory that is needed, so that a translation can run beside a training.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from absl import app, flags, logging

import t2t_keras
from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.files import local_path, replacing
from t2t_keras.machine.object_store import is_url
from t2t_keras.machine.remote import with_urls
from t2t_keras.machine.standard_error import tell

from . import closed_streams, helping, quiet_tensorflow  # noqa: F401  (the first sees to what is closed)

_UNRAISABLE = sys.unraisablehook
_AWAY = 69  # EX_UNAVAILABLE


def _interrupt_again(ignored: Any) -> None:
    """Interrupts again, later, where Python ignores it: in what JAX calls after each collection of garbage."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        interrupt = functools.partial(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
        threading.Timer(0.1, interrupt).start()
    else:
        _UNRAISABLE(ignored)


sys.unraisablehook = _interrupt_again

# Flags of all programs that name files or folders.
PATHS = (
    *("model_dir", "data_dir", "export_dir", "output_dir", "download_dir", "study_dir"),
    *("train_source", "train_target", "valid_source", "valid_target", "test_source", "test_target"),
    *("source", "target", "reference", "translation", "input", "output", "checkpoint", "checkpoints", "ensemble"),
    *("init_from", "hypotheses", "references", "vocab_from", "glossary"),
    *("output_source", "output_target"),
    *("model_config_file", "tls_certificate", "tls_key", "api_key_file"),
)

# Those of them that are texts in the program that runs.
TEXTS: set[str] = set()

# Those of them that may be URLs in the program that runs, and what is fetched and published.
REMOTE: dict[str, Callable[[str], contextlib.AbstractContextManager[str]]] = {}

# Called after the flags are parsed and before `main`.
BEFORE_MAIN: list[Callable[[], None]] = []

# What absl says of a flag that is missing, and of a value that a boolean flag does not take.
_MISSING = re.compile(r"flag --\w+=None: Flag --(\w+) must have a value other than None\.")
_BOOLEAN = re.compile(r"\('Non-boolean argument to boolean flag', .*\)$")


class _VersionFlag(flags.BooleanFlag):
    """Ends the program as soon as it is parsed, before missing flags are reported."""

    def __init__(self) -> None:
        super().__init__("version", False, "Say which versions this is, and of what it is built on.")

    def parse(self, arg: str | bool) -> None:
        super().parse(arg)
        if self.value:
            _answer(lambda: print(f"t2t_keras {t2t_keras.__version__} ({', '.join(_foundations())})"))


flags.DEFINE_flag(_VersionFlag())


def _foundations() -> list[str]:
    """The versions of the packages that results depend on; TensorFlow has several package names."""
    versions = []
    for name in ("tensorflow", "tensorflow-tpu", "tensorflow-text", "keras"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return [*versions, f"Python {platform.python_version()}"]


def run(main: Callable[[list[str]], None], on_any_backend: bool = False) -> None:
    """Parses the flags and calls `main`; bad input, or any other argument, becomes one line and exit status 1.

    An `AwayError` becomes status 69. Keras is to run on TensorFlow, or `on_any_backend` on what KERAS_BACKEND names.
    """
    if not on_any_backend:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    logging.set_verbosity(logging.WARNING)
    module = sys.modules[main.__module__]
    if helping.ASKING & set(sys.argv[1:]):
        _answer(lambda: print(helping.text(module, set(PATHS) - TEXTS, sys.argv[0])))
    # Of --helpfull, also if a console command is the main module.
    sys.modules["__main__"].__doc__ = helping.as_typed(module.__doc__ or "", sys.argv[0])
    if "--helpfull" in sys.argv[1:]:  # absl's own ends with status 1
        _answer(lambda: app.usage(writeto_stdout=True))
    app.run(lambda argv: _guard(main, argv), flags_parser=_parse)


def _answer(write: Callable[[], object]) -> NoReturn:
    """Writes what was asked for in place of the program's work, and ends it."""
    try:
        with _until_unread():
            write()
            sys.stdout.flush()
    except OSError as error:
        _fail(str(error))
    sys.exit(0)


def _parse(argv: list[str]) -> list[str]:
    """The arguments that are no flags; a flag that is unknown, wrong or missing becomes one line and exit status 1."""
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        missing = _MISSING.findall(str(error))
        text = f"{' and '.join(f'--{name}' for name in missing)} must be given" if missing else str(error)
        text = _BOOLEAN.sub("neither true nor false", text)
        _fail(f"{' '.join(text.split()).removeprefix('flag ').removesuffix('.').removesuffix(' ?')}; see --help")
    except UnicodeDecodeError as error:
        _fail(f"--flagfile: not valid UTF-8: {error.reason} at byte {error.start}")


def command(main: Callable[[list[str]], None], on_any_backend: bool = False) -> Callable[[], None]:
    """The console command that runs a program's `main`; runs it at once where Python was started with its module."""
    if main.__module__ == "__main__":
        run(main, on_any_backend)
    return functools.partial(run, main, on_any_backend)


def _guard(main: Callable[[list[str]], None], argv: list[str]) -> None:
    if len(argv) > 1:
        _fail(f"unexpected argument {argv[1]!r}; every setting is a flag, see --help")
    try:
        _check_paths()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
        for call in BEFORE_MAIN:
            call()
        with _until_unread(), _use_mirrors():
            main(argv)
            sys.stdout.flush()
    except AwayError as error:
        _fail(str(error), _AWAY)
    except (InputError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        tell("interrupted")
        sys.exit(130)
    finally:
        _forget_unwritten()


def _end(number: int, _: Any) -> NoReturn:
    """Ends the program by a signal, but so that what is half written is removed."""
    sys.exit(128 + number)


@contextlib.contextmanager
def _until_unread() -> Iterator[None]:
    """Ends the block where the reader of the output has stopped reading, which is not an error."""
    try:
        yield
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout, select.POLLERR)
        if not poll.poll(0):  # another pipe is broken
            raise
        _forget(sys.stdout)


def _forget(stream: IO[str]) -> None:
    """Drops what is written to a stream from now on, and what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _forget_unwritten() -> None:
    """Drops what streams hold that cannot be written: Python would make another exit status of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _forget(stream)


def _check_paths() -> None:
    """Refuses URLs in flags for files and folders, which would be taken for local names, and "", which is "."."""
    for name in (name for name in PATHS if name in flags.FLAGS and name not in TEXTS):
        value = flags.FLAGS[name].value
        if value == "" and helping.is_required(flags.FLAGS[name]):
            raise InputError(f"--{name} must not be empty")
        for path in value if isinstance(value, list) else [value]:
            if path and not (name in REMOTE and is_url(path)):
                local_path(path, f"--{name}")
            if path and any("\ud800" <= character <= "\udfff" for character in path):
                raise InputError(f"--{name}: {path!r} is no UTF-8, which names of files must be here")


def _use_mirrors() -> contextlib.AbstractContextManager[None]:
    """Within this context, flags have paths of mirrors in place of URLs."""
    if not REMOTE:
        return contextlib.nullcontext()
    from . import remote_paths  # it imports more than a program without such flags needs

    return remote_paths.mirrored(REMOTE)


def refuse_replacing(output: str | None, *inputs: str | None, flag: str = "output") -> None:
    """Raises an InputError if the file of the flag is one that is read."""
    for path in inputs:
        if path and output and os.path.isfile(output) and os.path.exists(path) and os.path.samefile(path, output):
            raise InputError(f"--{flag}={output} is what is read: the text would be lost; give another name")


def title(text: str) -> None:
    """Prints a heading, underlined."""
    say(f"\n{text}\n{'-' * len(text)}")


def say(line: str) -> None:
    """Prints a line, with programs as they were called, which is seen at once; if nobody reads, work goes on."""
    with _until_unread():
        print(helping.as_typed(line, sys.argv[0]), flush=True)


def warn(line: str) -> None:
    """Prints a line on standard error, with programs as they were called."""
    tell(helping.as_typed(line, sys.argv[0]))


def output(path: str | None) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Where a program writes what it makes: a file, as `replacing` does it, or for None standard output."""
    return contextlib.nullcontext(sys.stdout.buffer) if path is None else replacing(path, "wb")


def _fail(message: str, status: int = 1) -> NoReturn:
    warn(f"error: {with_urls(message)}")
    _forget_unwritten()
    sys.exit(status)
