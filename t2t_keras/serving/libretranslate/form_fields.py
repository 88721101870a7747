"""Reads the fields of requests in JSON and in the two encodings of HTML forms."""

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from t2t_keras.serving.http.json_tensors import parse_json
from t2t_keras.serving.request_errors import invalid

# Maximum number of fields of a form. LibreTranslate's forms have seven.
_MAX_FIELDS = 32

# Maximum size of a part's headers, because the pattern takes quadratic time for some headers.
_MAX_HEAD_BYTES = 1 << 10

_NAME = re.compile(rb'content-disposition:[^\r\n]*;[ \t]*name="?([^";\r\n]*)', re.IGNORECASE)


def read_fields(body: bytes, content_type: str, query: str) -> Mapping[str, Any]:
    """Parses a request.

    Args:
        body: the body, in JSON or an encoding of HTML forms.
        content_type: the header of this name.
        query: the query string of the URL, whose fields are added to those of a form.

    Returns:
        The fields by name; those of forms are strings with "\\n" as line breaks.

    Raises:
        ServingError: the body is invalid.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _json_fields(body)
    parts = _url_fields(query)
    is_multipart = kind == "multipart/form-data"
    parts |= _multipart_fields(body, content_type) if is_multipart else _url_fields(body.decode("latin-1"))
    try:
        return {name.decode("utf-8"): _text(value) for name, value in parts.items()}
    except UnicodeDecodeError as error:
        raise invalid(f"the form is not valid UTF-8: {error.reason}") from error


def _json_fields(body: bytes) -> Mapping[str, Any]:
    fields = parse_json(body)
    if not isinstance(fields, dict):
        raise invalid("Invalid JSON format: the body must be an object")
    return fields


def _url_fields(encoded: str) -> dict[bytes, bytes]:
    """Parses URL-encoded bytes, given as Latin-1."""
    try:
        pairs = urllib.parse.parse_qsl(encoded, keep_blank_values=True, encoding="latin-1", max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise invalid(f"the form has more than {_MAX_FIELDS} fields") from error
    return {name.encode("latin-1"): value.encode("latin-1") for name, value in pairs}


def _multipart_fields(body: bytes, content_type: str) -> dict[bytes, bytes]:
    match = re.search(r'boundary="?([^";,]+)', content_type, re.IGNORECASE)
    if not match:
        raise invalid("multipart/form-data without a boundary")
    delimiter = b"\r\n--" + match[1].strip().encode("latin-1")
    _, *parts = (b"\r\n" + body).split(delimiter, _MAX_FIELDS + 1)
    if len(parts) > _MAX_FIELDS:
        raise invalid(f"the form has more than {_MAX_FIELDS} fields")
    if not parts or not parts[-1].startswith(b"--"):
        raise invalid("the form is truncated: its last boundary is missing")
    fields = {}
    for part in parts[:-1]:
        head, blank_line, value = part.partition(b"\r\n\r\n")
        if not blank_line or len(head) > _MAX_HEAD_BYTES or not (name := _NAME.search(head)):
            raise invalid("a part of the form has no name")
        fields[name[1]] = value
    return fields


def _text(value: bytes) -> str:
    # Browsers send each line break of a form as two characters.
    return value.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
