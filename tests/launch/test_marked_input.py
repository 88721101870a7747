"""Tests of documents with markup: unchanged text gives the bytes of the input."""

import io
import types

import pytest

from launch.marked_input import write_marked
from t2t_keras.data.sources.corpora_files import read_raw_lines
from t2t_keras.text.markup.placing import AlignedText


class ReplacingTranslator:
    """Copies each text, and replaces the word "dogs"."""

    settings = types.SimpleNamespace(glossary=None)

    def translate_aligned(self, texts):
        translation = types.SimpleNamespace(terms=(), is_cut=False, exists=True)
        return [(translation, AlignedText.unchanged(text.replace("dogs", "dögs"))) for text in texts]


def translate_bytes(raw_lines, markup):
    output = io.BytesIO()
    assert write_marked(ReplacingTranslator(), raw_lines, output, markup, "in", chunk_lines=2) == 0
    return output.getvalue()


@pytest.mark.parametrize("markup", ["html", "xml", "placeholders"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "{newline}", "{newline}{newline}"])
def test_line_ends_are_preserved(tmp_path, markup, newline, end):
    lines = ["<p>A", "<b>man</b> runs.", "", "Two dögs play.</p>"]
    content = (newline.join(lines) + end.format(newline=newline)).encode()
    path = tmp_path / "in"
    path.write_bytes(content)
    assert translate_bytes(read_raw_lines(path), markup) == content
    assert translate_bytes(io.BytesIO(content), markup) == content


@pytest.mark.parametrize(
    ("markup", "start", "is_ascii"),
    [
        ("xml", '<?xml version="1.0" encoding="ISO-8859-1"?>', True),
        ("xml", "<?xml version='1.0' encoding='US-ASCII'?>", True),
        ("xml", '<?xml version="1.0" encoding="UTF-8"?>', False),
        ("xml", '<?xml version="1.0"?>', False),
        ("xml", '<?xml version="1.0" encoding="ISO-8859-1"?><!-- ä -->', False),  # the declaration is wrong
        ("html", '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">', True),
        ("html", '<META CHARSET="utf-8">', False),
        ("html", "", False),
        ("placeholders", '<?xml version="1.0" encoding="ISO-8859-1"?>', False),
    ],
)
def test_output_uses_the_declared_encoding(markup, start, is_ascii):
    lines = [f"{start}\n<p>Two dogs play.</p>\n".encode()]
    expected = f"{start}\n<p>Two {'d&#246;gs' if is_ascii else 'dögs'} play.</p>\n"
    assert translate_bytes(lines, markup) == expected.encode()
