"""Translates lines of text with markup into a file."""

import itertools
import re
from collections.abc import Collection, Iterable
from typing import IO, TYPE_CHECKING

from t2t_keras.data.sources.corpora_files import decoded_line, without_byte_order_mark
from t2t_keras.errors import named
from t2t_keras.inference.marked_text import translate_marked
from t2t_keras.text.markup.documents import MarkedDocument, Markup

from . import program
from .term_report import TermReport

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

# The encoding that a document declares.
_DECLARATION = re.compile(r"""<(?:\?xml|meta)\s[^<>]*?\b(?:encoding|charset)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def write_marked(
    translator: "Translator",
    raw_lines: Iterable[bytes],
    output: IO[bytes],
    markup: Markup,
    name: str,
    chunk_lines: int,
    attributes: Collection[str] = (),
) -> int:
    """Writes the translation of an HTML or XML document, or of lines with placeholders.

    All lines of the output end like the first line of the input. A byte order mark is dropped. The output is UTF-8, or
    ASCII with character references if the input is ASCII and declares a different encoding.

    Args:
        translator: the translator.
        raw_lines: the input.
        output: the file to write to.
        markup: the kind of markup.
        name: name of the input, for messages.
        chunk_lines: number of lines with placeholders that are translated together.
        attributes: names of the attributes to translate.

    Returns:
        The number of outputs that were cut at the length limit.

    Raises:
        InputError: a line is not UTF-8, or the document is not well-formed XML. The message names the line.
    """
    report, num_cut, newline = TermReport(name), 0, ""
    lines = enumerate(raw_lines, start=1)
    size = chunk_lines if markup == "placeholders" else None
    while chunk := list(itertools.islice(lines, size)):
        newline = newline or _line_end(chunk[0][1]) or "\n"
        texts = [_decode(raw, number, name) for number, raw in chunk]
        if markup != "placeholders":
            texts = ["".join(texts)]
        documents = [MarkedDocument.parsed(text, markup, name, attributes) for text in texts]
        results, translations = translate_marked(translator, documents)
        for (number, _), document, segment_translations in zip(chunk, documents, translations, strict=False):
            for segment, translation in zip(document.segments, segment_translations, strict=True):
                line = number + segment.line - 1
                report.add(line, translation)
                num_cut += translation.is_cut
                if not translation.exists:
                    program.warn(f"warning: {name}, line {line}: no translation was found; the text is unchanged")
        encoding = "utf-8" if markup == "placeholders" else _output_encoding(texts[0])
        output.write("".join(results).replace("\n", newline).encode(encoding, "xmlcharrefreplace"))
        output.flush()
    if translator.settings.glossary is not None:
        report.print()
    return num_cut


def _output_encoding(document: str) -> str:
    """Returns the encoding of the translation of a document, in agreement with the declaration of the document."""
    match = _DECLARATION.search(document) if document.isascii() else None
    return "ascii" if match and match[1].lower() not in ("utf-8", "utf8") else "utf-8"


def _line_end(raw: bytes) -> str:
    """Returns the line end of a line; "" for a last line without one."""
    return next((end for end in ("\r\n", "\n", "\r") if raw.endswith(end.encode())), "")


def _decode(raw: bytes, number: int, name: str) -> str:
    """Decodes a line, whose line end becomes a line feed."""
    with named(f"{name}, line {number}"):
        line = decoded_line(without_byte_order_mark(raw) if number == 1 else raw)
    return f"{line}\n" if _line_end(raw) else line
