"""Publishes and fetches versions of exported models in object storage, where other servers can read them, too.

A version is URL/NUMBER/ with the files of an export under their original names, so that TensorFlow Serving can load it.
`FILE_LIST` names the files with SHA-256 and size. It is created first and exclusively, which reserves the version
number. `GRAPH_FILE` is uploaded last; a version without it is incomplete.
"""

import json
import shutil
from pathlib import Path

from t2t_keras.errors import InputError
from t2t_keras.export_contract import FILE_LIST, GRAPH_FILE
from t2t_keras.machine.files import temporary_name
from t2t_keras.machine.object_store import Store
from t2t_keras.machine.remote import download, files_of, measured, mirror_of


def is_version(store: Store) -> bool:
    """Returns whether a URL is that of a complete version of an export."""
    return GRAPH_FILE in store.names()


def is_export(store: Store) -> bool:
    """Returns whether a URL is that of an export with a complete version, or of a complete version."""
    return is_version(store) or any(_is_complete(store, number) for number in _numbers(store))


def published(version: Path) -> str:
    """Publishes a newly written version.

    If its directory is in a mirror, the version is uploaded and the local directory removed.

    Returns:
        The URL of an uploaded version, or the local path.
    """
    mirror = mirror_of(version)
    if mirror is None:
        return str(version)
    url = publish_version(mirror.store, version)
    shutil.rmtree(version)
    return url


def publish_version(store: Store, version: Path) -> str:
    """Uploads an export's version under the next free version number, and returns its URL."""
    paths = dict(files_of(version))
    contents = json.dumps({name: measured(path) for name, path in paths.items()}, indent=1).encode()
    number = max(_numbers(store), default=0) + 1
    while not store.create(f"{number}/{FILE_LIST}", contents):
        number += 1
    for name in sorted(paths, key=lambda name: (name == GRAPH_FILE, name)):
        store.put(paths[name], f"{number}/{name}")
    return f"{store.url}/{number}"


def fetch_newest(store: Store, folder: Path) -> int | None:
    """Downloads the newest complete version unless `folder` has it; removes versions that the store no longer has.

    If the export was deleted from the store, its version numbers start again. A local version of the same number is
    therefore replaced if its list of files differs.

    Returns:
        The number of the newest complete version, or None if there is none.
    """
    numbers = sorted(_numbers(store), reverse=True)
    for entry in folder.iterdir():
        if entry.name.isdecimal() and not (int(entry.name) in numbers and _is_complete(store, int(entry.name))):
            shutil.rmtree(entry)
    number = next((number for number in numbers if _is_complete(store, number)), None)
    if number is None:
        return None
    newest, prefix = folder / str(number), f"{number}/"
    listing = newest / FILE_LIST  # missing in a version that was written here and not fetched
    if not listing.exists() or listing.read_bytes() != store.read(f"{prefix}{FILE_LIST}"):
        temporary = folder / temporary_name("version")  # not a number, so that a server does not load it yet
        try:
            fetch_version(store, temporary, prefix)
            shutil.rmtree(newest, ignore_errors=True)
            temporary.rename(newest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return number


def fetch_version(store: Store, folder: Path, prefix: str = "") -> None:
    """Downloads a version to a local directory, and writes its list of files last.

    The directory is created if missing. Other files in it are removed.

    Args:
        store: the store.
        folder: the local directory.
        prefix: prefix of the version's object names, such as "3/"; "" if the store's URL is the version's.

    Raises:
        InputError: a file is missing or damaged in the store, or the version was not published by `publish_version`.
    """
    listing = store.read(f"{prefix}{FILE_LIST}")
    if listing is None:
        raise InputError(f"{store.url}/{prefix}{FILE_LIST} is missing: publish the version with launch.export")
    try:
        files = {name: (sha256, size) for name, (sha256, size) in json.loads(listing).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{store.url}/{prefix}{FILE_LIST} is damaged: {error}") from error
    for name, path in files_of(folder) if folder.exists() else ():
        if name not in files:  # from a previous version at this URL
            path.unlink()
    for name, (sha256, size) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and measured(path) == (sha256, size):
            continue
        if not download(store, f"{prefix}{name}", path, sha256, size):
            raise InputError(f"{store.url}/{prefix}{name} is named in {FILE_LIST}, but is missing or damaged")
    (folder / FILE_LIST).parent.mkdir(parents=True, exist_ok=True)
    (folder / FILE_LIST).write_bytes(listing)


def _is_complete(store: Store, number: int) -> bool:
    """Returns whether a version is complete: its graph is uploaded last."""
    return GRAPH_FILE in store.names(str(number))


def _numbers(store: Store) -> list[int]:
    return [int(name) for name in store.names() if name.isascii() and name.isdecimal()]
