"""Documents with markup whose text stays: the output has the bytes of the input."""

import io
import types

import pytest

from launch.marked_input import write_marked
from t2t_keras.data.sources.corpora_files import read_raw_lines
from t2t_keras.text.markup.placing import AlignedText


class RepeatingTranslator:
    """Repeats every text."""

    settings = types.SimpleNamespace(glossary=None)

    def translate_aligned(self, texts):
        translation = types.SimpleNamespace(terms=(), is_cut=False, exists=True)
        return [(translation, AlignedText.unchanged(text)) for text in texts]


def written(raw_lines, markup):
    output = io.BytesIO()
    assert write_marked(RepeatingTranslator(), raw_lines, output, markup, "in", chunk_lines=2) == 0
    return output.getvalue()


@pytest.mark.parametrize("markup", ["html", "xml", "placeholders"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "{newline}", "{newline}{newline}"])
def test_line_ends_stay(tmp_path, markup, newline, end):
    lines = ["<p>A", "<b>man</b> runs.", "", "Two dögs play.</p>"]
    content = (newline.join(lines) + end.format(newline=newline)).encode()
    path = tmp_path / "in"
    path.write_bytes(content)
    assert written(read_raw_lines(path), markup) == content
    assert written(io.BytesIO(content), markup) == content
