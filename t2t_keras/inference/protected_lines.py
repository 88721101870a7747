"""Translates lines with protected spans, and lines in an unusual case, around the search of a translator."""

import dataclasses
from collections.abc import Callable, Sequence

from t2t_keras.errors import InputError
from t2t_keras.inference.marked_text import TokenLinks, aligned
from t2t_keras.inference.request import Ids, Request
from t2t_keras.inference.translation import Translation
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.preparation import Preparation, Prepared
from t2t_keras.text.protection.removal import Sentence, diagonal
from t2t_keras.text.repair import repair
from t2t_keras.text.text_tokenizer import TextTokenizer

Translate = Callable[[Sequence[str | Request]], list[list[Translation]]]
LinkTokens = Callable[[Sequence[Ids], Sequence[Ids]], list[TokenLinks]]


class ProtectedLines:
    """Translates lines so that each of their protected spans appears exactly once in the translation.

    Spans with unknown characters are removed from a line before it is translated, and put back according to the word
    alignment. Other spans remain in the line. If the translation does not repeat each of them exactly once, the line is
    translated again without them.

    Args:
        prepare: prepares lines.
        tokenizer: the tokenizer of the model.
        link_tokens: aligns tokens; raises an `InputError` if the model offers no attention.
        encode: encodes a request; raises an `InputError` if it cannot be satisfied.
    """

    def __init__(
        self,
        prepare: Preparation,
        tokenizer: TextTokenizer,
        link_tokens: LinkTokens,
        encode: Callable[[Request], object],
    ) -> None:
        self._prepare, self._tokenizer, self._link_tokens, self._encode = prepare, tokenizer, link_tokens, encode

    def prepared(self, line: str | Request, *, keeps_spans: bool = True) -> Prepared | None:
        """Prepares a line; a line whose translation is restricted keeps its case."""
        if isinstance(line, str):
            return self._prepare(line, keeps_spans=keeps_spans)
        is_restricted = bool(line.prefix or line.constraints)
        return self._prepare(line.text, keeps_spans=keeps_spans, keeps_case=is_restricted)

    def read(self, request: Request) -> Request:
        """Returns a request with the text that is translated first."""
        prepared = self.prepared(request)
        return request if prepared is None else dataclasses.replace(request, text=prepared.text)

    def translations(
        self, lines: Sequence[str | Request], translate: Translate, translate_again: Translate
    ) -> list[list[Translation]]:
        """Translates lines.

        Args:
            lines: the lines.
            translate: translates lines as they are, and returns the translations of each line, best first.
            translate_again: the same, for the lines that are translated again without their spans.
        """
        rows, results = self._translated(lines, translate, translate_again)
        flat = [(rows[row].text, each) for row in rows for each in results[row]]
        are_linked = [bool(rows[row].removed) for row in rows for _ in results[row]]
        sentences = iter(self._sentences(flat, are_linked))
        for row, prepared in rows.items():
            results[row] = [finished(lines[row], prepared, each, next(sentences)) for each in results[row]]
        return results

    def aligned_translations(self, lines: Sequence[str], translate: Translate) -> list[tuple[Translation, AlignedText]]:
        """Translates lines, and aligns the best translation of each with the line.

        A line for which the search finds no translation is aligned with itself.
        """
        rows, results = self._translated(lines, translate, translate)
        best = [translations[0] for translations in results]
        prepared_rows = [row for row in rows if best[row].exists]
        sentences = self._sentences([(rows[row].text, best[row]) for row in prepared_rows], [True] * len(prepared_rows))
        texts = [AlignedText("", ())] * len(lines)
        for row, row_sentences in zip(prepared_rows, sentences, strict=True):
            texts[row] = rows[row].aligned(row_sentences)
            best[row] = finished(lines[row], rows[row], best[row], row_sentences)
        plain_rows = [row for row, each in enumerate(best) if each.exists and row not in rows]
        links = iter(self._links([best[row] for row in plain_rows]))
        for row in plain_rows:
            texts[row] = self._aligned(lines[row], best[row], [next(links) for _ in best[row].source_ids])
        return [
            (each, text if each.exists else AlignedText.unchanged(line))
            for line, each, text in zip(lines, best, texts, strict=True)
        ]

    def _translated(
        self, lines: Sequence[str | Request], translate: Translate, translate_again: Translate
    ) -> tuple[dict[int, Prepared], list[list[Translation]]]:
        """Returns the prepared lines by row, and the translations of all lines as the model read them."""
        rows = {row: prepared for row, line in enumerate(lines) if (prepared := self.prepared(line))}
        read = [_with_text(line, rows[row].text) if row in rows else line for row, line in enumerate(lines)]
        results = translate(read)
        retries: dict[int, Prepared] = {}
        for row, prepared in rows.items():
            if prepared.is_met(results[row][0].text):
                results[row] = [each for each in results[row] if prepared.is_met(each.text)]
            elif (retry := self.prepared(lines[row], keeps_spans=False)) and self._is_possible(lines[row], retry):
                retries[row] = retry
        rows |= retries
        read = [_with_text(lines[row], prepared.text) for row, prepared in retries.items()]
        for row, translations in zip(retries, translate_again(read) if read else [], strict=True):
            results[row] = translations
        return rows, results

    def _is_possible(self, line: str | Request, prepared: Prepared) -> bool:
        """Returns whether a line without its spans, whose length limit is lower, can meet its restrictions."""
        try:
            if isinstance(line, Request):
                self._encode(dataclasses.replace(line, text=prepared.text))
        except InputError:
            return False
        return True

    def _sentences(self, pairs: Sequence[tuple[str, Translation]], are_linked: Sequence[bool]) -> list[list[Sentence]]:
        """Returns the sentences of texts with their translations.

        Args:
            pairs: the texts as the model read them, and their translations.
            are_linked: whether the translation of each text needs links to it.
        """
        rows = [sentences_of(*pair) for pair in pairs]
        flat = [
            translation for row, is_linked in zip(rows, are_linked, strict=True) if is_linked for *_, translation in row
        ]
        try:
            links = iter(self._links(flat))
        except InputError:  # the model offers no attention
            links = None
        results: list[list[Sentence]] = []
        for row, is_linked in zip(rows, are_linked, strict=True):
            results.append([])
            for before, source, translation in row:
                text = AlignedText(translation.text, ())
                if is_linked and links is None:
                    text = diagonal(repair(source), translation.text)
                elif is_linked and links is not None:
                    text = self._aligned(repair(source), translation, [next(links) for _ in translation.source_ids])
                results[-1].append(Sentence(before, source, text))
        return results

    def _links(self, translations: Sequence[Translation]) -> list[TokenLinks]:
        """Returns the links of each part of translations; raises an `InputError` if the model offers no attention."""
        sources = [ids for each in translations for ids in each.source_ids]
        return self._link_tokens(sources, [ids for each in translations for ids in each.token_ids]) if sources else []

    def _aligned(self, source: str, translation: Translation, links: list[TokenLinks]) -> AlignedText:
        sources = [self._tokenizer.source.pieces(ids) for ids in translation.source_ids]
        targets = [self._tokenizer.pieces(ids) for ids in translation.token_ids]
        return aligned(source, translation.text, sources, targets, links)


def sentences_of(text: str, translation: Translation) -> list[tuple[str, str, Translation]]:
    """Returns the white space before each sentence, the sentence and its translation; none if the text is blank."""
    if translation.sentences:
        return [(each.before, each.source, each.translation) for each in translation.sentences]
    return [("", text, translation)] if text else []


def finished(
    line: str | Request, prepared: Prepared, translation: Translation, sentences: Sequence[Sentence]
) -> Translation:
    """Returns the translation of a line.

    Args:
        line: the line.
        prepared: the line as the model read it.
        translation: the translation of the prepared text.
        sentences: the sentences of this translation.
    """
    if not translation.exists:
        return dataclasses.replace(translation, unknown=prepared.unknown)
    phrases, prefix = [term.form for term in translation.terms], ""
    if isinstance(line, Request):
        prefix = line.prefix
        phrases += [each for one in line.constraints for each in ((one,) if isinstance(one, str) else one)]
    text = prepared.finished(sentences, phrases, prefix).text
    return dataclasses.replace(translation, text=text, unknown=prepared.unknown)


def _with_text(line: str | Request, text: str) -> str | Request:
    return text if isinstance(line, str) else dataclasses.replace(line, text=text)
