"""A server of one toy model, a browser, and batchers."""

import gc
import shutil

import pytest


@pytest.fixture(autouse=True)
def without_freezing(monkeypatch):
    """Disables `_freeze_objects`, which would take seconds, because tests have more objects than a server."""
    monkeypatch.setattr("t2t_keras.serving.versions._freeze_objects", lambda: None)


@pytest.fixture
def without_gc():
    """Turns the garbage collector off, so that only objects without references are freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def versions_1_and_2(tmp_path_factory):
    from tests.serving import toy

    folder = tmp_path_factory.mktemp("versions")
    for version in (1, 2):
        toy.save(folder, version, ["good", "better"])
    return folder


@pytest.fixture
def export_dir(versions_1_and_2, tmp_path):
    """A directory with version 1, for one test."""
    folder = tmp_path / "toy"
    shutil.copytree(versions_1_and_2 / "1", folder / "1")
    return folder


@pytest.fixture(scope="session")
def server(versions_1_and_2, tmp_path_factory):
    from t2t_keras.serving.options import Limits, ServingOptions
    from t2t_keras.serving.server import Server

    folder = tmp_path_factory.mktemp("served") / "toy"
    shutil.copytree(versions_1_and_2 / "1", folder / "1")
    limits = Limits(
        max_body_bytes=20_000,
        max_sentences=40,
        max_sentence_bytes=300,
        max_input_length=50,
        max_output_elements=100_000,
    )
    options = ServingOptions(
        str(folder), rest_port=0, grpc_port=0, max_batch_size=8, num_streams=2, max_queue_bytes=20_000, limits=limits
    )
    server = Server(options)
    server.start()
    yield server
    assert server.stop()


@pytest.fixture(scope="module")
def client(server):
    import httpx

    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from tests.serving.page_driver import start_browser

    browser = start_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def make_batcher():
    from t2t_keras.serving.batcher import Batcher

    batchers = []

    def make_batcher(size=4, streams=1, queue=10**9, cost=10**9, on_batch=lambda rows: None):
        batchers.append(Batcher(size, cost, streams, queue, on_batch))
        return batchers[-1]

    yield make_batcher
    for batcher in batchers:
        batcher.close(20)
        assert not any(stream.is_alive() for stream in batcher._streams)
