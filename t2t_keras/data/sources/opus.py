"""Downloads the aligned sentences of a corpus of OPUS in one language pair, and refuses a changed archive."""

import re
from pathlib import Path

from t2t_keras.data.checksums import checksum
from t2t_keras.data.sources import downloads
from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing

ADDRESS = "https://object.pouta.csc.fi"

_EXAMPLE = "opus:Tatoeba/v2023-04-12"
_NAME = re.compile(r"([\w.-]+)/([\w.-]+)")


def fetch(name: str, languages: tuple[str, str], folder: str | Path) -> Path:
    """Downloads the archive of a language pair unless it exists, and verifies it.

    The SHA-256 of the first download is stored in a file next to the archive, because OPUS publishes none.

    Args:
        name: corpus and version, as in "Tatoeba/v2023-04-12".
        languages: the two language codes, as OPUS spells them.
        folder: folder of all downloads from OPUS.

    Returns:
        The path of the archive.

    Raises:
        InputError: the name has a different form, or the archive is not available or differs from the first download.

    Reference: https://opus.nlpl.eu
    """
    match = _NAME.fullmatch(name)
    if not match or {".", ".."} & {*match.groups()}:
        raise InputError(f"corpus=opus:{name}: expected a corpus and its version, as in {_EXAMPLE}")
    if languages[0] == languages[1]:
        raise InputError(f"corpus=opus:{name}: source_language and target_language are both {languages[0]}")
    corpus, version = match.groups()
    file_name = f"{'-'.join(sorted(languages))}.txt.zip"
    archive = Path(folder) / corpus / version / file_name
    record = archive.with_name(f"{file_name}.sha256")
    downloads.fetch(f"{ADDRESS}/OPUS-{corpus}/{version}/moses/{file_name}", archive)
    if record.exists():
        downloads.verify(archive, record.read_text(encoding="utf-8").split()[0])
    else:
        with replacing(record) as file:
            file.write(f"{checksum(archive)}  {file_name}\n")
    return archive
