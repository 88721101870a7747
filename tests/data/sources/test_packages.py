import hashlib
import zipfile

import polib
import pytest

from t2t_keras.data.sources import corpora, packages
from t2t_keras.data.sources.packages import DOCSTRINGS, GETTEXT, Pin
from t2t_keras.errors import InputError


def publish(folder, name, version, pairs):
    """Writes a wheel that pip accepts, and returns its pin."""
    po = polib.POFile()
    po.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    po.extend(polib.POEntry(msgid=source, msgstr=target) for source, target in pairs)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/locale/de/LC_MESSAGES/django.po", str(po))
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return Pin(name.replace("_", "-"), version, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A directory that pip uses as its only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def pins(index, monkeypatch):
    pins = (
        publish(index, "held_out", "1.0", [("Log in", "Anmelden"), ("Log in", "Einloggen"), ("Admin", "Admin")]),
        publish(index, "first", "2.0", [("Save it", "Speichere es"), ("Log in", "Anmelden")]),
        publish(index, "second", "3.0", [("Close it", "Schließe es")]),
    )
    monkeypatch.setattr(packages, "GETTEXT", pins)
    return pins


def test_packages_are_downloaded_once_and_give_pairs_in_the_order_of_the_pins(tmp_path, pins, monkeypatch):
    lines = []
    corpus = corpora.gettext("en", "de", tmp_path / "kept", lines.append)
    assert list(corpus.splits["test"]()) == [("Log in", "Anmelden")]
    assert list(corpus.splits["train"]()) == [
        ("Save it", "Speichere es"),
        ("Log in", "Anmelden"),
        ("Close it", "Schließe es"),
    ]
    assert corpus.provenance() == {"packages": ["held-out==1.0", "first==2.0", "second==3.0"], "missing": {}}
    assert lines == [f"downloading 3 packages to {tmp_path / 'kept' / 'gettext'}"]
    assert {path.suffix for path in (tmp_path / "kept" / "gettext").iterdir()} == {".whl"}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    again = corpora.gettext("de", "en", tmp_path / "kept", lines.append)
    assert list(again.splits["test"]()) == [("Anmelden", "Log in"), ("Einloggen", "Log in")]
    assert len(lines) == 1


@pytest.mark.integration
def test_a_different_file_with_a_pinned_name_is_rejected(tmp_path, index, pins):
    publish(index, "second", "3.0", [("Close it", "tampered with")])
    lines = []
    wheels, errors = packages.fetch(pins, tmp_path / "kept", lines.append)
    assert [pin.name for pin in wheels] == ["held-out", "first"]
    assert list(errors) == [pins[2]] and lines[1].startswith("second==3.0 is left out: ")
    (tmp_path / "kept" / "second-3.0-py3-none-any.whl").write_bytes(b"put here by hand")
    with pytest.raises(InputError, match=r"second-3.0-py3-none-any.whl: SHA-256 is"):
        packages.fetch(pins, tmp_path / "kept", lines.append)


@pytest.mark.parametrize("missing", [0, 2])
def test_only_the_test_set_must_be_available(tmp_path, index, pins, monkeypatch, missing):
    wheel, gone = index / "first-2.0-py3-none-any.whl", pins[missing]
    wheels = {pin: wheel for pin in pins if pin != gone}
    monkeypatch.setattr(packages, "fetch", lambda *_: (wheels, {gone: "no such version"}))
    corpus = corpora.gettext("en", "de", tmp_path)
    if missing:
        assert len(list(corpus.splits["train"]())) == 2
        assert corpus.provenance()["missing"] == {"second==3.0": "no such version"}
    else:
        with pytest.raises(InputError, match=r"^held-out==1\.0, the test set, is not available: no such version$"):
            list(corpus.splits["train"]())


def test_an_environment_without_pip_is_an_error(tmp_path, pins, monkeypatch):
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"pip, which downloads the text, is missing in this environment: python -m ensurepip"
    ):
        packages.fetch(pins, tmp_path / "kept", print)


@pytest.mark.parametrize(("pins", "first", "count"), [(GETTEXT, "django", 40), (DOCSTRINGS, "networkx", 49)])
def test_the_pins_are_well_formed_and_the_test_set_comes_first(pins, first, count):
    assert pins[0].name == first
    assert len({pin.name for pin in pins}) == len(pins) == count
    assert all(len(bytes.fromhex(pin.sha256)) == 32 and pin.name == pin.name.lower() for pin in pins)
