"""Versions of exported models in object storage, where other servers read them too.

A version is URL/NUMBER/ with the files of an export under their own names, so that TensorFlow Serving can load it.
`assets.extra/files.json`, which names them with SHA-256 and size, is made first and exclusively: it claims the number.
`saved_model.pb` is uploaded last: a version without it is none.
"""

import json
import shutil
from pathlib import Path

from t2t_keras.errors import InputError
from t2t_keras.machine.files import temporary_name
from t2t_keras.machine.object_store import Store
from t2t_keras.machine.remote import download, files_of, measured, mirror_of

GRAPH = "saved_model.pb"
_FILES = "assets.extra/files.json"


def is_version(store: Store) -> bool:
    """Whether a URL is that of a version of an export."""
    return GRAPH in store.names()


def is_export(store: Store) -> bool:
    """Whether a URL is that of an export with a whole version, or of a whole version."""
    return is_version(store) or any(_is_whole(store, number) for number in _numbers(store))


def published(version: Path) -> str:
    """Where a version is that was just written: its path; or its URL, if it was written in a mirror.

    It is uploaded then, and its folder is removed.
    """
    mirror = mirror_of(version)
    if mirror is None:
        return str(version)
    url = publish_version(mirror.store, version)
    shutil.rmtree(version)
    return url


def publish_version(store: Store, version: Path) -> str:
    """Uploads the folder of an export's version under the next free number, and returns its URL."""
    paths = dict(files_of(version))
    contents = json.dumps({name: measured(path) for name, path in paths.items()}, indent=1).encode()
    number = max(_numbers(store), default=0) + 1
    while not store.create(f"{number}/{_FILES}", contents):
        number += 1
    for name in sorted(paths, key=lambda name: (name == GRAPH, name)):
        store.put(paths[name], f"{number}/{name}")
    return f"{store.url}/{number}"


def fetch_newest(store: Store, folder: Path) -> int | None:
    """Downloads the newest whole version that a local folder lacks, and removes others that the store has no more.

    Numbers begin anew in a folder that was deleted: a version of the same number that lists other files is replaced.

    Returns its number, or None if there is none.
    """
    numbers = sorted(_numbers(store), reverse=True)
    for entry in folder.iterdir():
        if entry.name.isdecimal() and not (int(entry.name) in numbers and _is_whole(store, int(entry.name))):
            shutil.rmtree(entry)
    number = next((number for number in numbers if _is_whole(store, number)), None)
    if number is None:
        return None
    newest, prefix = folder / str(number), f"{number}/"
    listed = newest / _FILES  # one that was written here and not fetched has none
    if not listed.exists() or listed.read_bytes() != store.read(f"{prefix}{_FILES}"):
        temporary = folder / temporary_name("version")  # not a number, so that a server does not load it yet
        try:
            fetch_version(store, temporary, prefix)
            shutil.rmtree(newest, ignore_errors=True)
            temporary.rename(newest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return number


def fetch_version(store: Store, folder: Path, prefix: str = "") -> None:
    """Downloads a version into a local folder, which is made if it is missing, and the list of its files at last.

    Other files in the folder are removed.

    Raises:
        InputError: a file is missing or damaged in the store, or the version was not published by `publish_version`.
    """
    listed = store.read(f"{prefix}{_FILES}")
    if listed is None:
        raise InputError(f"{store.url}/{prefix}{_FILES} is missing: publish the version with launch.export")
    try:
        wanted = {name: (sha256, size) for name, (sha256, size) in json.loads(listed).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{store.url}/{prefix}{_FILES} is damaged: {error}") from error
    for name, path in files_of(folder) if folder.exists() else ():
        if name not in wanted:  # of what had this URL before
            path.unlink()
    for name, (sha256, size) in wanted.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and measured(path) == (sha256, size):
            continue
        if not download(store, f"{prefix}{name}", path, sha256, size):
            raise InputError(f"{store.url}/{prefix}{name} is missing or damaged, which {_FILES} names")
    (folder / _FILES).parent.mkdir(parents=True, exist_ok=True)
    (folder / _FILES).write_bytes(listed)


def _is_whole(store: Store, number: int) -> bool:
    """Whether all of a version is there: its graph comes last."""
    return GRAPH in store.names(str(number))


def _numbers(store: Store) -> list[int]:
    return [int(name) for name in store.names() if name.isascii() and name.isdecimal()]
