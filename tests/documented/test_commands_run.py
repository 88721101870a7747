"""Runs the commands of the README and the documents with small sizes, except those in `sizes.NOT_RUN`.

The commands of a page run one after the other in a separate folder, with generated text.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.formats import hub
from tests.s3_server import s3_server

from . import input_files, sizes
from .pages import COMMANDS
from .reader import Reader, reader

pytestmark = pytest.mark.slow  # runs all programs many times, for twelve minutes

PAGES = list(dict.fromkeys(each.page for each in COMMANDS if not sizes.reason_not_to_run(each)))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    input_files.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def shared_reader(tmp_path_factory, files) -> Iterator[Reader]:
    with reader(tmp_path_factory.mktemp("shared"), files) as page_reader:
        yield page_reader


@contextlib.contextmanager
def local_services(page: str, folder: Path, files: Path) -> Iterator[None]:
    """Starts the local servers that replace remote services for a page."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if page == "object_storage":
            stack.enter_context(s3_server())
            import boto3

            boto3.client("s3").create_bucket(Bucket="mine")
            patch.setenv("T2T_KERAS_CACHE", str(folder / "cache"))
        if page == "convert":
            server = stack.enter_context(hub.serving(files / "opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de"))
            for name, value in server.environment(folder / "cache").items():
                patch.setenv(name, value)
        yield


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run(page, tmp_path, files, shared_reader) -> None:
    commands = [each for each in COMMANDS if each.page == page and not sizes.reason_not_to_run(each)]
    missing = {each: package for each in commands if (package := sizes.missing_package(each))}
    with local_services(page, tmp_path, files), reader(tmp_path / "reader", files, shared_reader) as page_reader:
        for command in commands:
            if command not in missing:
                started = time.monotonic()
                page_reader.run(command)
                print(f"{time.monotonic() - started:5.1f} s  {command}", flush=True)  # with `pytest -s`
    shutil.rmtree(tmp_path)
    if missing:
        pytest.skip("; ".join(f"{command}: {package} is not installed" for command, package in missing.items()))
