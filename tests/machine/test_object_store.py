"""Objects in a bucket of a server with S3's interface, and errors for missing stores and packages."""

import builtins
from pathlib import Path

import pytest

from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.object_store import Store, is_url
from t2t_keras.machine.remote import Mirror
from tests.s3_server import BUCKET, s3_server


@pytest.fixture(scope="module")
def server():
    with s3_server():
        yield


def test_urls_are_recognised():
    assert all(map(is_url, ("s3://bucket/run", "gs://b", "abfs://a@b.c/d", "memory://a", "file:///a")))
    assert not any(map(is_url, ("runs/mine", "/a:/b", "s3:/bucket", "run@gs://mine", "s3://", "", Path("s3://b"))))


@pytest.mark.quick("memory", "file")
@pytest.mark.parametrize("scheme", ["s3", "memory", "file"])
def test_objects(scheme, request, tmp_path):
    if scheme == "s3":
        request.getfixturevalue("server")
    url = f"file://{tmp_path}/store" if scheme == "file" else f"{scheme}://bucket/folder"
    store, file = Store(f"{url}/"), tmp_path / "file"
    assert store.url == url and store.names() == [] and store.read("a/1") is None
    assert store.create("a/1", b"first") and not store.create("a/1", b"second")
    file.write_bytes(b"of a file")
    store.put(file, "a/2")
    store.put(file, "b")
    assert store.read("a/1") == b"first" and Store(url).read("a/2") == b"of a file"
    assert sorted(store.names()) == ["a", "b"] and sorted(store.names("a")) == ["1", "2"]
    assert store.get("a/1", tmp_path / "got") and (tmp_path / "got").read_bytes() == b"first"
    assert not store.get("a/3", tmp_path / "none")
    store.remove(["a/1", "a/3"])
    assert store.names("a") == ["2"]


@pytest.mark.integration
def test_a_run_in_a_bucket(server, tmp_path, monkeypatch):
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path))
    writer, reader = Mirror(f"{BUCKET}/run"), Mirror(f"{BUCKET}/run")
    (writer.path / "a").write_text("1", encoding="utf-8")
    with writer.held(lambda line: None):
        writer.publish()
    reader.fetch()
    assert (reader.path / "a").read_text(encoding="utf-8") == "1"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("refused"), AwayError),
        (TimeoutError(), AwayError),
        (type("NoCredentialsError", (Exception,), {})("none"), InputError),
        (ValueError("a name that cannot be"), InputError),
        (PermissionError("no"), InputError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_only_unreachable_stores_are_worth_a_retry(monkeypatch, error, kind):
    def fail(*arguments, **named):
        raise error

    store = Store("memory://bucket/run")
    monkeypatch.setattr(store._files, "ls", fail)
    with pytest.raises(InputError, match="^memory://bucket/run: ") as caught:
        store.names()
    assert type(caught.value) is kind


def test_unknown_protocols_and_missing_packages_are_errors(monkeypatch):
    with pytest.raises(InputError, match="^nothing://bucket/run: Protocol not known: nothing$"):
        Store("nothing://bucket/run")
    with pytest.raises(InputError, match="^s3:/// does not name a bucket$"):
        Store("s3:///")
    imported = builtins.__import__

    def missing(name, *arguments):
        if name.startswith(("gcsfs", "fsspec")):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"^gs://b/run: a required package is missing .+: pip install '\.\[remote\]'$"):
        Store("gs://b/run")
