"""What every program does around its `main`: flags, one-line errors, an exit status."""

import contextlib
import gc
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType

# Before TensorFlow is imported: its start-up notices are of no use to the users of these programs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Of a GPU's memory take what is needed, not all of it: a translation beside a training finds some.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from absl import app, flags, logging

import t2t_keras
from t2t_keras.errors import InputError

# The flags, of any program, that name files or folders.
PATHS = (
    *("model_dir", "data_dir", "export_dir", "output_dir", "download_dir"),
    *("train_source", "train_target", "valid_source", "valid_target", "test_source", "test_target"),
    *("source", "reference", "translation", "input", "output", "checkpoint", "checkpoints", "ensemble"),
)


# Called when the flags are parsed, before `main`.
BEFORE_MAIN: list[Callable[[], None]] = []


class _VersionFlag(flags.BooleanFlag):
    """Ends the program as soon as it is parsed, before flags that are missing are asked for."""

    def __init__(self) -> None:
        super().__init__("version", False, "Say which versions this is, and of what it is built on.")

    def parse(self, arg: str | bool) -> None:
        super().parse(arg)
        if self.value:
            print(f"t2t_keras {t2t_keras.__version__} ({', '.join(_foundations())})")
            sys.exit(0)


flags.DEFINE_flag(_VersionFlag())


def _foundations() -> list[str]:
    """The versions of what answers depend on; TensorFlow goes by several names."""
    versions = []
    for name in ("tensorflow", "tensorflow-tpu", "tensorflow-text", "keras"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return [*versions, f"Python {platform.python_version()}"]


def run(main: Callable[[list[str]], None]) -> None:
    """Parses the flags and calls `main`; bad input becomes one line and exit status 1.

    Args:
        main: takes the arguments that are not flags, of which there may be none.
    """
    logging.set_verbosity(logging.WARNING)
    _describe(sys.modules[main.__module__])
    app.run(lambda argv: _guarded(main, argv))


def _describe(module: ModuleType) -> None:
    """Lets --help show a module's own text and flags, also where a console command is the main module."""
    sys.modules["__main__"].__doc__ = module.__doc__
    for flag in (*flags.FLAGS.get_key_flags_for_module(module), flags.FLAGS["version"]):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _guarded(main: Callable[[list[str]], None], argv: list[str]) -> None:
    if len(argv) > 1:
        _fail(f"unexpected argument {argv[1]!r}; every setting is a flag, see --help")
    try:
        _check_paths()
        for call in BEFORE_MAIN:
            call()
        gc.freeze()  # what was imported stays: to look through it again and again takes a tenth of a program's start
        main(argv)
    except BrokenPipeError:
        # Whoever read our output has what they wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _check_paths() -> None:
    """Refuses URLs, which would be taken for the names of folders here.

    Raises:
        InputError: a flag that names a file or a folder holds one.
    """
    for name in (name for name in PATHS if name in flags.FLAGS):
        value = flags.FLAGS[name].value
        for path in value if isinstance(value, list) else [value]:
            if path and "://" in path:
                raise InputError(
                    f"--{name}={path} is no path of this machine's file system; mount the bucket or copy what is in it"
                )


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
