"""Request fields in JSON and in HTML forms."""

import json

import httpx
import pytest

from t2t_keras.serving.libretranslate.form_fields import read_fields
from t2t_keras.serving.request_errors import ServingError

URL_ENCODED, JSON = "application/x-www-form-urlencoded", "application/json"
MULTIPART = "multipart/form-data; boundary=xyz"
FIELDS = {"q": "Grüße & 100 %\n\n=", "source": "", "a b": "c+d"}


def part(name, value):
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


@pytest.mark.parametrize("form", [{"data": FIELDS}, {"files": {name: (None, text) for name, text in FIELDS.items()}}])
def test_html_forms(form):
    request = httpx.Request("POST", "http://localhost/", **form)
    assert read_fields(request.read(), request.headers["content-type"], "") == FIELDS


def test_json_and_query_strings():
    assert read_fields(json.dumps({"q": ["a", "b"]}).encode(), f"{JSON}; charset=utf-8", "q=c") == {"q": ["a", "b"]}
    assert read_fields(b"q=a%0D%0Ab", URL_ENCODED, "target=de") == {"q": "a\nb", "target": "de"}
    assert read_fields(b"", "", "q=%C3%A4") == {"q": "ä"}


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"{", JSON, "JSON Parse error"),
        (b"[]", JSON, "must be an object"),
        (b"\xff", JSON, "not valid UTF-8"),
        (b"[" * 100_000, JSON, "JSON Parse error"),
        (b"q=%ff", URL_ENCODED, "not valid UTF-8"),
        (b"a&" * 50, URL_ENCODED, "more than 32 fields"),
        (b"", "multipart/form-data", "without a boundary"),
        (part("q", "a").encode(), MULTIPART, "its last boundary is missing"),
        (b"nothing", MULTIPART, "its last boundary is missing"),
        (b"--xyz\r\nX: y\r\n\r\na\r\n--xyz--", MULTIPART, "has no name"),
        (part("q", "a").encode() * 40 + b"--xyz--", MULTIPART, "more than 32 fields"),
        (part("q" * 2000, "a").encode() + b"--xyz--", MULTIPART, "has no name"),
    ],
)
def test_bad_bodies(body, kind, words):
    with pytest.raises(ServingError, match=words):
        read_fields(body, kind, "")


def test_headers_are_parsed_without_backtracking():
    """A backtracking search would take minutes."""
    head = b"content-disposition:;" * 50_000
    with pytest.raises(ServingError):
        read_fields(b"--xyz\r\n" + head + b"\r\n\r\na\r\n--xyz--", MULTIPART, "")
