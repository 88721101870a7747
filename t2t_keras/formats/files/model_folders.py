"""Models that are downloaded before they are read."""

from pathlib import Path

from t2t_keras.errors import InputError, optional_module

_SCHEME = "hf://"


def local_folder(name: str) -> Path:
    """The folder of a model: a path, or hf://OWNER/NAME, which Hugging Face's package downloads to its cache.

    An InputError says that there is no such folder, that the package is missing, or why the download failed.
    """
    if not name.startswith(_SCHEME):
        folder = Path(name)
        if not folder.is_dir():
            raise InputError(f"{name} is no folder")
        return folder
    missing = f"{name}: the package huggingface_hub is missing: pip install huggingface_hub"
    huggingface_hub = optional_module("huggingface_hub", missing)
    try:
        return Path(huggingface_hub.snapshot_download(name.removeprefix(_SCHEME), ignore_patterns=["*.h5", "*.ot"]))
    except Exception as error:  # its errors have no common class, and those of its network library come too
        raise InputError(f"{name} cannot be downloaded: {' '.join(str(error).split())}") from error
