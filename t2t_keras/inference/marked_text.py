"""Translates documents with markup, whose tags are placed by the alignment of the translator's model."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_keras.inference.translation import Translation
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText, Link
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
    texts = [segment.text for document in documents for segment in document.segments]
    pairs = translator.translate_aligned(texts)
    rows, translations = (text for _, text in pairs), (translation for translation, _ in pairs)
    results = [document.filled([next(rows) for _ in document.segments]) for document in documents]
    return results, [[next(translations) for _ in document.segments] for document in documents]


class TokenLinks(NamedTuple):
    """Links between tokens, as pairs (source position, target position), without end symbols.

    Attributes:
        links: each target token with the source token that it attends to most, unless that is an end symbol.
        weak_links: each source token without a link, with the target token that attends to it most.
    """

    links: list[tuple[int, int]]
    weak_links: list[tuple[int, int]]


def token_links(source_pieces: Sequence[str], target_pieces: Sequence[str], weights: np.ndarray) -> TokenLinks:
    """Links tokens by attention, float [target_len, source_len], possibly with padding at the end."""
    sources, targets = (
        [place for place, piece in enumerate(pieces) if piece != END] for pieces in (source_pieces, target_pieces)
    )
    if not sources or not targets:
        return TokenLinks([], [])
    weights = weights[targets, : len(source_pieces)]  # --> [targets, source_len]
    pairs = zip(map(int, weights.argmax(1)), targets, strict=True)
    links = [(source, target) for source, target in pairs if source_pieces[source] != END]
    missing = sorted(set(sources) - {source for source, _ in links})
    return TokenLinks(links, [(source, targets[weights[:, source].argmax()]) for source in missing])


def aligned(
    text: str,
    translation: str,
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    links: Sequence[TokenLinks],
) -> AlignedText:
    """Converts links between tokens to links between spans of characters.

    Args:
        text: the source.
        translation: its translation.
        sources: the source pieces of each part. The first one may be missing in the text, like a language tag that is
            put in front of each part.
        targets: the target pieces of each part.
        links: the links of each part's tokens.
    """
    source_places, target_places = _places(sources, text), _places(targets, translation)

    def text_links(part: int, pairs: Sequence[tuple[int, int]]) -> Iterator[Link]:
        for source, target in pairs:
            target_place, source_place = target_places[part][target], source_places[part][source]
            if target_place and source_place:
                yield *target_place, *source_place

    return AlignedText(
        translation,
        tuple(link for part, each in enumerate(links) for link in text_links(part, each.links)),
        tuple(link for part, each in enumerate(links) for link in text_links(part, each.weak_links)),
    )


def _places(parts: Sequence[Sequence[str]], text: str) -> list[list[tuple[int, int] | None]]:
    """Returns the span of characters, (start, end), of each piece of each part of a text.

    The text may contain a part only without its first piece, for example because the case of a word differs. The span
    of this piece is then the text in front of the other pieces, or None if there is no such text. If the text does not
    contain the parts in order, the spans are scaled to the text's length. Pieces are measured in bytes, because
    byte-fallback pieces stand for single bytes.
    """
    spellings = [[_spelling(piece) for piece in part] for part in parts]
    content = text.encode()
    characters = [n for n, character in enumerate(text) for _ in character.encode()] + [len(text)]
    starts = _starts(spellings, content)
    scale = 1.0
    if starts is None:
        sizes = [sum(map(len, spelling)) for spelling in spellings]
        starts = [(start, 0) for start in itertools.accumulate(sizes[:-1], initial=0)]
        scale = len(content) / max(sum(sizes), 1)

    def character_at(byte: int) -> int:
        return characters[min(max(round(byte * scale), 0), len(content))]

    places: list[list[tuple[int, int] | None]] = []
    last_end = 0
    for (start, num_missing), spelling in zip(starts, spellings, strict=True):
        pieces = spelling[num_missing:]
        ends = list(itertools.accumulate(map(len, pieces), initial=start))
        if scale == 1.0 and pieces:
            ends[0] += len(pieces[0]) - len(pieces[0].lstrip(b" "))
        spans = [(character_at(first), character_at(last)) for first, last in itertools.pairwise(ends)]
        front = content[last_end : max(ends[0], last_end)]
        first = last_end + len(front) - len(front.lstrip())
        first_span = (character_at(first), character_at(first + len(front.strip()))) if front.strip() else None
        places.append([*[first_span] * num_missing, *spans])
        last_end = ends[-1]
    return places


def _spelling(piece: str) -> bytes:
    """Returns the bytes that a piece stands for."""
    if (byte := byte_of(piece)) is not None:
        return bytes([byte])
    return b"" if piece == END else piece.replace(BLANK, " ").encode()


def _starts(parts: Sequence[Sequence[bytes]], content: bytes) -> list[tuple[int, int]] | None:
    """Returns the position of each part in a text, and how many of the part's first pieces the text lacks: 0 or 1.

    The position is that of the blank with which the part begins. The text need not have this blank, so the first
    position can be -1. The result is None if the text lacks more than the first piece of a part.
    """
    starts, place = [], 0
    content = content.lower()  # of ASCII letters only, so that the positions stay the same
    for pieces in parts:
        for num_missing in (0, 1):
            part = b"".join(pieces[num_missing:]).lower()
            words = part.strip(b" ")
            start = content.find(words, place)
            if start >= 0 and (words or not num_missing):
                starts.append((start - (len(part) - len(part.lstrip(b" "))), num_missing))
                place = start + len(words)
                break
        else:
            return None
    return starts
