"""Translates documents with markup on a server, with the outputs of an export's signature `align`."""

import itertools
from collections.abc import Mapping, Sequence
from typing import cast, get_args

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.inference.marked_text import aligned, token_links
from t2t_keras.text.markup.documents import MarkedDocument, Markup
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.pieces import END


class ServedDocuments:
    """Documents that are split into their texts and their markup.

    Args:
        markup: the kind of markup: "html", "xml" or "placeholders".
        documents: the documents; with "placeholders", texts without tags.
        attributes: names of the attributes to translate.

    Attributes:
        texts: the texts to translate, in order.

    Raises:
        InputError: the kind of markup is unknown or has no attributes, or a document is not well-formed XML.
    """

    def __init__(self, markup: str, documents: Sequence[str], attributes: Sequence[str] = ()) -> None:
        if markup not in get_args(Markup):
            raise InputError(f"markup must be one of {', '.join(get_args(Markup))}; got {markup[:40]!r}")
        self._documents = [
            MarkedDocument.parsed(text, cast(Markup, markup), f"document {number}", attributes)
            for number, text in enumerate(documents, start=1)
        ]
        self.texts = [segment.text for document in self._documents for segment in document.segments]

    def filled(self, outputs: Sequence[Mapping[str, np.ndarray] | AlignedText]) -> list[str]:
        """Returns the documents with their texts translated.

        `outputs` are, for each text, the outputs of `align` with a batch of one, or the aligned translation.
        """
        pairs = zip(self.texts, outputs, strict=True)
        rows = iter([out if isinstance(out, AlignedText) else aligned_output(text, out) for text, out in pairs])
        return [document.filled([next(rows) for _ in document.segments]) for document in self._documents]


def aligned_output(text: str, outputs: Mapping[str, np.ndarray]) -> AlignedText:
    """Returns a translation with its word links, or the text itself if there is no translation.

    Args:
        text: the text.
        outputs: the outputs of `align`, with a batch of one.
    """
    source, target = (
        [piece.decode() for piece in outputs[f"{side}_pieces"][0] if piece] for side in ("source", "target")
    )
    if not target:
        return AlignedText.unchanged(text)
    sources, targets = _parts(source), _parts(target)
    if len(sources) != len(targets):  # the output of a part was cut at the length limit, so its end is unknown
        sources, targets = [slice(0, len(source))], [slice(0, len(target))]
    links = []
    for source_part, target_part in zip(sources, targets, strict=True):
        weights = outputs["attention"][0, target_part, source_part]
        links.append(token_links(source[source_part], target[target_part], weights))
    pieces = [source[part] for part in sources], [target[part] for part in targets]
    return aligned(text, outputs["translation"][0].decode(), *pieces, links)


def _parts(pieces: Sequence[str]) -> list[slice]:
    """Returns the places of a line's parts, each of which ends with an end symbol."""
    ends = [number for number, piece in enumerate(pieces, start=1) if piece == END or number == len(pieces)]
    return [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
