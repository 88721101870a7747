"""Translates documents with markup, whose tags are placed by the alignment of the translator's model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_keras.inference.translation import Translation
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.pieces import BLANK, END, byte_of

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator


def translate_marked(
    translator: "Translator", documents: Sequence[MarkedDocument]
) -> tuple[list[str], list[list[Translation]]]:
    """Translates documents segment by segment.

    A segment for which the search finds no translation keeps its text.

    Returns:
        The translated documents, and the translations of each document's segments.

    Raises:
        InputError: the model does not offer its attention.
    """
    translator.link_tokens([], [])  # raises before any search starts
    texts = [segment.text for document in documents for segment in document.segments]
    segment_translations = translator.translate(texts, scored=False)
    links = iter(
        translator.link_tokens(
            [ids for translation in segment_translations for ids in translation.source_ids],
            [ids for translation in segment_translations for ids in translation.token_ids],
        )
    )
    texts_with_links = []
    for text, translation in zip(texts, segment_translations, strict=True):
        part_links = [next(links) for _ in translation.source_ids]
        sources = [translator.tokenizer.source.pieces(ids) for ids in translation.source_ids]
        targets = [translator.tokenizer.pieces(ids) for ids in translation.token_ids]
        linked_text = (
            aligned(text, translation.text, sources, targets, part_links) if translation.exists else unchanged(text)
        )
        texts_with_links.append(linked_text)
    rows, translations = iter(texts_with_links), iter(segment_translations)
    results = [document.filled([next(rows) for _ in document.segments]) for document in documents]
    return results, [[next(translations) for _ in document.segments] for document in documents]


def aligned(
    text: str,
    translation: str,
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    links: Sequence[Sequence[tuple[int, int]]],
) -> AlignedText:
    """Converts links between tokens to links between spans of characters.

    Args:
        text: the source.
        translation: its translation.
        sources: the source pieces of each part.
        targets: the target pieces of each part.
        links: the links (source position, target position) of each part's tokens.
    """
    source_places, target_places = _places(sources, text), _places(targets, translation)
    text_links = []
    for part, part_links in enumerate(links):
        for source, target in part_links:
            text_links.append((*target_places[part][target], *source_places[part][source]))
    return AlignedText(translation, tuple(text_links))


def unchanged(text: str) -> AlignedText:
    """Returns a text that stands in for its missing translation, with each character linked to itself."""
    return AlignedText(text, tuple((place, place + 1, place, place + 1) for place in range(len(text))))


def _places(parts: Sequence[Sequence[str]], text: str) -> list[list[tuple[int, int]]]:
    """Returns the span of characters, (start, end), of each piece of each part of a text.

    If the pieces do not spell the text exactly, the spans are scaled to the text's length. Pieces are measured in
    bytes, because byte-fallback pieces stand for single bytes.
    """
    ends: list[list[tuple[int, int]]] = []
    place = 0
    for part in parts:
        ends.append([])
        for piece in part:
            size = 1 if byte_of(piece) is not None else len(piece.replace(BLANK, " ").encode())
            ends[-1].append((place, place + (0 if piece == END else size)))
            place = ends[-1][-1][1]
    characters = [n for n, character in enumerate(text) for _ in character.encode()] + [len(text)]
    num_bytes = len(characters) - 1
    # The first piece begins with a blank that is not in the text.
    offset = 1 if place == num_bytes + 1 else 0
    scale = 1.0 if place == num_bytes + offset else num_bytes / max(place, 1)

    def character_at(byte: int) -> int:
        return characters[min(max(round((byte - offset) * scale), 0), num_bytes)]

    return [[(character_at(start), character_at(end)) for start, end in part] for part in ends]
