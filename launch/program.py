"""Runs a program's `main`: parses the flags, prints errors on one line, and sets the exit status."""

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

# Set before TensorFlow is imported, because its start-up notices are of no use to users.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# TensorFlow then takes only the GPU memory that it needs, so that a translation can run on the GPU of a training.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from absl import app, flags, logging

import t2t_keras
from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.files import local_path, replacing
from t2t_keras.machine.object_store import is_url
from t2t_keras.machine.remote import with_urls
from t2t_keras.machine.standard_error import tell

from . import closed_streams, flag_types, helping, quiet_tensorflow  # noqa: F401  (the first opens closed streams)

_UNRAISABLE = sys.unraisablehook
_AWAY = 69  # EX_UNAVAILABLE


def _interrupt_again(ignored: Any) -> None:
    """Repeats an interrupt that Python ignored, because it came in JAX's callback after a garbage collection."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        interrupt = functools.partial(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
        threading.Timer(0.1, interrupt).start()
    else:
        _UNRAISABLE(ignored)


sys.unraisablehook = _interrupt_again

# Flags of paths that may be URLs in the running program, with functions that fetch and publish.
REMOTE: dict[str, Callable[[str], contextlib.AbstractContextManager[str]]] = {}

# Functions that are called after the flags are parsed and before `main`.
BEFORE_MAIN: list[Callable[[], None]] = []

# Messages of absl about a missing flag, and about an invalid value of a boolean flag.
_MISSING = re.compile(r"flag --\w+=None: Flag --(\w+) must have a value other than None\.")
_BOOLEAN = re.compile(r"\('Non-boolean argument to boolean flag', .*\)$")


class _VersionFlag(flags.BooleanFlag):
    """A flag that ends the program as soon as it is parsed, before missing flags are reported."""

    def __init__(self) -> None:
        super().__init__("version", False, "Print the versions of this package and of its main dependencies.")

    def parse(self, arg: str | bool) -> None:
        super().parse(arg)
        if self.value:
            _print_and_exit(lambda: print(f"t2t_keras {t2t_keras.__version__} ({', '.join(_dependency_versions())})"))


flags.DEFINE_flag(_VersionFlag())


def _dependency_versions() -> list[str]:
    """Returns the versions of the packages that results depend on; TensorFlow has several package names."""
    versions = []
    for name in ("tensorflow", "tensorflow-tpu", "tensorflow-text", "keras"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return [*versions, f"Python {platform.python_version()}"]


def run(main: Callable[[list[str]], None], on_any_backend: bool = False) -> None:
    """Parses the flags and calls `main`.

    Bad input and arguments that are not flags become one line and exit status 1; an `AwayError` becomes status 69.

    Args:
        main: the program's function.
        on_any_backend: whether Keras may run on the backend that KERAS_BACKEND names; otherwise it runs on TensorFlow.
    """
    if not on_any_backend:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    logging.set_verbosity(logging.WARNING)
    module = sys.modules[main.__module__]
    if helping.HELP_FLAGS & set(sys.argv[1:]):
        _print_and_exit(lambda: print(helping.text(module, sys.argv[0])))
    # For --helpfull, even if a console command is the main module.
    sys.modules["__main__"].__doc__ = helping.as_typed(module.__doc__ or "", sys.argv[0])
    if "--helpfull" in sys.argv[1:]:  # with absl, it would end with status 1
        _print_and_exit(lambda: app.usage(writeto_stdout=True))
    app.run(lambda argv: _guard(main, argv), flags_parser=_parse)


def _print_and_exit(write: Callable[[], object]) -> NoReturn:
    """Prints a requested text, such as the help, and ends the program."""
    try:
        with _ignore_closed_output():
            write()
            sys.stdout.flush()
    except OSError as error:
        _fail(str(error))
    sys.exit(0)


def _parse(argv: list[str]) -> list[str]:
    """Returns the arguments that are not flags; an unknown, invalid or missing flag ends the program with status 1."""
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
    """Returns the console command that runs a program's `main`; runs it now if its module is the main module."""
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
                signal.signal(number, _exit_on_signal)
        for call in BEFORE_MAIN:
            call()
        with _ignore_closed_output(), _use_mirrors():
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
        _discard_unwritten()


def _exit_on_signal(number: int, _: Any) -> NoReturn:
    """Ends the program on a signal with an exception, so that incomplete files are removed."""
    sys.exit(128 + number)


@contextlib.contextmanager
def _ignore_closed_output() -> Iterator[None]:
    """A context that ends without an error if the reader of the output has stopped reading."""
    try:
        yield
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout, select.POLLERR)
        if not poll.poll(0):  # another pipe is broken
            raise
        _discard(sys.stdout)


def _discard(stream: IO[str]) -> None:
    """Discards the buffered and all future output of a stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _discard_unwritten() -> None:
    """Discards buffered output that cannot be written, because Python would change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _check_paths() -> None:
    """Raises InputError for paths of the wrong kind, and for URLs, which would be read as local names."""
    for name in flags.FLAGS:  # "" would mean "."
        if flags.FLAGS[name].value == "" and helping.is_required(flags.FLAGS[name]):
            raise InputError(f"--{name} must not be empty")
    for flag, kind, path in flag_types.path_values():
        if any("\ud800" <= character <= "\udfff" for character in path):
            raise InputError(f"--{flag.name}: {path!r} is not valid UTF-8; names of files must be UTF-8")
        if not (flag.name in REMOTE and is_url(path)):
            local_path(path, f"--{flag.name}")
            flag_types.check_path(flag.name, kind, path)


def _use_mirrors() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which flags have paths of mirrors instead of URLs."""
    if not REMOTE:
        return contextlib.nullcontext()
    from . import remote_paths  # imports more than a program without such flags needs

    return remote_paths.mirrored(REMOTE)


def refuse_replacing(output: str | None, *inputs: str | None, flag: str = "output") -> None:
    """Raises InputError if the output file is one of the input files."""
    for path in inputs:
        if path and output and os.path.isfile(output) and os.path.exists(path) and os.path.samefile(path, output):
            raise InputError(f"--{flag}={output} is also the input, which would be lost; give a different name")


def title(text: str) -> None:
    """Prints an underlined heading."""
    say(f"\n{text}\n{'-' * len(text)}")


def say(line: str) -> None:
    """Prints a line immediately, with programs in the form that the user typed; continues if the reader has stopped."""
    with _ignore_closed_output():
        print(helping.as_typed(line, sys.argv[0]), flush=True)


def warn(line: str) -> None:
    """Prints a line on standard error, with programs in the form that the user typed."""
    tell(helping.as_typed(line, sys.argv[0]))


def output(path: str | None) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Returns the output of a program: a file, written by `replacing`, or standard output if `path` is None."""
    return contextlib.nullcontext(sys.stdout.buffer) if path is None else replacing(path, "wb")


def _fail(message: str, status: int = 1) -> NoReturn:
    warn(f"error: {with_urls(message)}")
    _discard_unwritten()
    sys.exit(status)
