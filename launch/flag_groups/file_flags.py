"""The flags about translators' files, such as gettext catalogues."""

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.localization.formats import FORMATS, Options, format_suffix

_TEXT = "text"

_FORMAT = flags.DEFINE_enum(
    "input_format",
    None,
    [_TEXT, *(suffix.removeprefix(".") for suffix in FORMATS)],
    "Format of the input; text: lines; default: by the suffix of --input.",
)
ALL = flags.DEFINE_bool("all", False, "Whether to also translate the units of a file that already have a translation.")
COLUMN = flags.DEFINE_string("column", Options.column, "Column of a .csv or .tsv file with the texts to translate.")
TARGET_COLUMN = flags.DEFINE_string(
    "target_column", Options.target_column, "Column of a .csv or .tsv file for the translations."
)
IN_PLACE = flags.DEFINE_bool("in_place", False, "Whether to write the translations into the file --input itself.")


def check_used(suffix: str | None, has_input: bool, has_output: bool) -> None:
    """Raises InputError for flags that would have no effect on an input of this format."""
    if IN_PLACE.value and not (suffix and has_input and not has_output):
        raise InputError("--in_place requires an --input with units, such as a .po file, and no --output")
    if ALL.value and not suffix:
        raise InputError("--all requires an input with units, such as a .po file")
    for flag in (COLUMN, TARGET_COLUMN):
        if flag.present and suffix not in (".csv", ".tsv"):
            raise InputError(f"--{flag.name} requires a .csv or .tsv file")


def input_suffix(name: str | None) -> str | None:
    """Returns the key of `FORMATS` for the input, or None for lines of text.

    Raises:
        InputError: the suffix is that of a different kind of file.
    """
    if _FORMAT.value:
        return None if _FORMAT.value == _TEXT else f".{_FORMAT.value}"
    return format_suffix(name) if name else None
