import hashlib
import zipfile

import pytest

from t2t_keras.data.sources import corpora, docstrings, packages
from t2t_keras.data.sources.packages import Pin
from t2t_keras.errors import InputError

LONG = " ".join(f"word{number}" for number in range(25))


def test_the_first_sentence_and_the_rest():
    assert list(docstrings.pair_of(f"Sums it up.\n\n    {LONG}\n    and more.\n    ")) == [
        (f"{LONG} and more.", "Sums it up.")
    ]
    assert list(docstrings.pair_of(f"Sums it\n    up here. {LONG}")) == [(LONG, "Sums it up here.")]
    assert list(docstrings.pair_of(f"Sums, i.e. adds it. {LONG}")) == [(LONG, "Sums, i.e. adds it.")]
    assert list(docstrings.pair_of(f"Without a stop\n\n{LONG}")) == [(LONG, "Without a stop")]
    assert list(docstrings.pair_of(f"=============\nOf all things\n=============\n\n{LONG}")) == [
        (LONG, "Of all things.")
    ]


@pytest.mark.parametrize("text", ["A summary alone.", f"Two words. {LONG}", f"{LONG} {LONG}.\n\n{LONG}", ""])
def test_docstrings_with_a_short_or_long_side_give_no_pair(text):
    assert list(docstrings.pair_of(text)) == []


@pytest.mark.parametrize(
    "section",
    [
        "Parameters\n----------\nx: more",
        "Args:\n    x: more",
        "Returns:\n    more",
        ":param x: more",
        "@param x: more",
        ":rtype: more",
        "See Also\n--------\nmore",
    ],
)
def test_sections_are_left_out(section):
    assert list(docstrings.pair_of(f"Sums it up.\n\n{LONG}\n\n{section}")) == [(LONG, "Sums it up.")]
    assert list(docstrings.pair_of(f"Sums it up.\n\n{section}\n{LONG}")) == []


def test_markup_and_examples_are_left_out():
    text = f"It calls :func:`~a.b`.\n\nLike ``c`` of :class:`the one <x.y>` {LONG}\n\n>>> b()\n1\n.. note::"
    assert list(docstrings.pair_of(text)) == [(f"Like c of the one {LONG} 1", "It calls a.b.")]


def test_a_long_description_is_truncated():
    ((description, _),) = docstrings.pair_of(f"Sums it up.\n\n{' '.join([LONG] * 20)}")
    assert len(description.split()) == 200


def publish(folder, name, *modules):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for number, module in enumerate(modules):
            wheel.writestr(f"{name}/module_{number}.py", module)
        wheel.writestr(f"{name}/tests/test.py", f'"""Tests it all.\n\n{LONG}"""')
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return Pin(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


def documented(number):
    return f'class A:\n    """Sums up {number}.\n\n    {LONG} {number}\n    """\n    def f(self):\n        "\\d"\n'


def test_packages_give_pairs_and_the_first_is_the_test_set(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    pins = (
        publish(tmp_path, "one", documented(1)),
        publish(tmp_path, "two", documented(2), "no (python", documented(1)),
    )
    monkeypatch.setattr(packages, "DOCSTRINGS", pins)
    corpus = corpora.docstring_pairs(tmp_path / "kept", lambda line: None)
    assert list(corpus.splits["test"]()) == [(f"{LONG} 1", "Sums up 1.")]
    assert list(corpus.splits["train"]()) == [(f"{LONG} {n}", f"Sums up {n}.") for n in (2, 1)]


def test_a_broken_wheel_is_named(tmp_path):
    (tmp_path / "x.whl").write_text("no archive")
    with pytest.raises(InputError, match="x.whl: broken compressed file"):
        docstrings.read_wheel(tmp_path / "x.whl")
