"""Finds the folders of models, and downloads models from Hugging Face."""

from pathlib import Path

from t2t_keras.errors import InputError, optional_module

_SCHEME = "hf://"


def local_folder(name: str) -> Path:
    """Returns the folder of a model.

    Args:
        name: a path, or hf://OWNER/NAME, which the package huggingface_hub downloads to its cache.

    Raises:
        InputError: the folder does not exist, the package is missing, or the download failed.
    """
    if not name.startswith(_SCHEME):
        folder = Path(name)
        if not folder.is_dir():
            raise InputError(f"{name} is not a folder")
        return folder
    missing = f"{name}: the package huggingface_hub is missing: pip install huggingface_hub"
    huggingface_hub = optional_module("huggingface_hub", missing)
    try:
        return Path(huggingface_hub.snapshot_download(name.removeprefix(_SCHEME), ignore_patterns=["*.h5", "*.ot"]))
    except Exception as error:  # huggingface_hub's errors and its network library's have no common class
        raise InputError(f"{name} cannot be downloaded: {' '.join(str(error).split())}") from error
