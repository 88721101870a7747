"""Requests, which are lines with restrictions on their translations, and their encoding as token ids."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError, named
from t2t_keras.search.batches import length_batches, padded
from t2t_keras.search.searcher import OPTIONS, output_limits, padded_constraints, padded_phrases
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.labels import as_symbol, check_known, of_symbol
from t2t_keras.tasks.registry import task as task_named
from t2t_keras.tasks.task import Task
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.repair import lowercased, repair, without_surrogates
from t2t_keras.text.sentences import Sentence, blank_between, find_sentences
from t2t_keras.text.splitting import split_context, split_text
from t2t_keras.text.text_tokenizer import TextTokenizer

_FIRST_ORDINARY_ID = 3  # after padding, the end symbol and the unknown token

# Only this many spellings of an excluded phrase are barred, those with the fewest tokens. A word of a dozen letters can
# have hundreds of spellings, but a model hardly ever writes one of the longer ones.
_MAX_SPELLINGS = 64

Ids = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Request:
    """A line to translate, and restrictions on its translation.

    If the task's outputs are labels, the prefix and the phrases consist of whole labels, separated by spaces.

    A line of several sentences is translated sentence by sentence, and the prefix applies to the first sentence. The
    line is translated as a whole if there are constraints, which any of its sentences may meet, or if the prefix has
    several sentences.

    Attributes:
        text: the line.
        prefix: the beginning of the translation. The model continues after the prefix's last token, so it completes an
            incomplete word and may add an ending to a complete one. The first word is truecased like that of a
            reference.
        constraints: words or phrases that the translation must contain, spelled as in the middle of a line and not as
            part of a longer word. A tuple of phrases means that one of them is enough. Matching is case-sensitive. If
            the search finds no translation that meets all constraints, `Translation.exists` is false.
        excluded: words or phrases that the translation must not contain. A phrase that begins with a letter or a digit
            is barred only at the beginning of a word: "hund" also bars "hunde" if that is tokenized as "hund" plus
            an ending, but not "Hund" or "Schäferhund". Any other phrase is barred everywhere. The 64 shortest
            spellings as tokens are barred, except spellings that use bytes for a character that has a token.
    """

    text: str
    prefix: str = ""
    constraints: tuple[str | tuple[str, ...], ...] = ()
    excluded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class EncodedRequest:
    """A request as token ids, without end symbols.

    Attributes:
        parts: token ids of each part in which the line is translated; none for a blank line.
        text: the repaired line.
        prefix: token ids of the prefix.
        constraints: token ids of each constraint's phrases; one phrase of each constraint is enough.
        excluded: token ids of each spelling of each excluded phrase.
        sentences: the line's sentences, each with its number of parts; empty unless there are several sentences.
    """

    parts: tuple[Ids, ...]
    text: str = ""
    prefix: Ids = ()
    constraints: tuple[tuple[Ids, ...], ...] = ()
    excluded: tuple[Ids, ...] = ()
    sentences: tuple[tuple[Sentence, int], ...] = ()

    def of_parts(self) -> "list[EncodedRequest]":
        """Returns one request per part; only the first one keeps the prefix."""
        return [
            dataclasses.replace(self, parts=(ids,), prefix=() if number else self.prefix)
            for number, ids in enumerate(self.parts)
        ]


def head_end(task: Task, tokenizer: TextTokenizer) -> str:
    """Returns a regular expression that matches the end of a text's head, or "" if the task's texts have no head.

    The head is the beginning of a text that is repeated in front of each of its parts. It extends to the task's
    `context` symbol. In a task without a context, it is a symbol of the vocabulary at the start of the text, such as a
    language tag.
    """
    if task.context:
        return re.escape(task.context)
    symbols = sorted(tokenizer.source.symbols, key=len, reverse=True) if task.takes_tags else []
    return f"^(?:{'|'.join(map(re.escape, symbols))})" if symbols else ""


class RequestEncoder:
    """Converts lines and requests to token ids, and rejects those that no search can satisfy.

    Args:
        tokenizer: the tokenizer with the model's vocabulary.
        config: the decoding settings.
        data: the settings of the training data; see `Translator`.
        excluded: phrases that no translation may contain; see `Request.excluded`.
        options: the fields of a request that the engine supports, a subset of `searcher.OPTIONS`.

    Attributes:
        task: defines how long texts are split, what a source must contain, and how labels are written.
        max_source_length: maximum number of tokens of a part, end symbol included.
        has_sentences: whether lines are translated sentence by sentence.
        excluded: token ids of the spellings of the excluded phrases.

    Raises:
        InputError: an excluded phrase is blank, has characters that the vocabulary cannot represent, or is not a label
            although the outputs are labels.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        config: DecodeConfig,
        data: DataConfig,
        excluded: Sequence[str],
        options: frozenset[str] = frozenset(OPTIONS),
    ) -> None:
        task = self.task = task_named(data.task)
        self.max_source_length = max(2, data.max_length)  # a token and the end
        self.has_sentences = task.has_sentences and config.split == "sentences"
        self._tokenizer, self._source_tokenizer = tokenizer, tokenizer.source
        self._options = options
        self._form = task.form(tokenizer)
        self._writes_labels = task.has_known_labels
        self._labels_words = self._form is not None and self._form.word_starts is not None
        self._head_end = head_end(task, tokenizer)
        symbols = sorted(tokenizer.source.symbols) if task.takes_tags else []
        if config.tag and config.tag not in symbols:
            raise InputError(
                f"the tag {config.tag} (decode.tag) is not a symbol of the model: {' '.join(symbols) or 'it has none'}"
            )
        self._reads_beginnings = task.reads_beginnings
        self._config, self._data = config, data
        self._ids_by_piece: dict[str, int] = {}
        self._ids_by_byte: dict[int, int] = {}
        self.excluded = self._spellings_of(excluded)

    def repaired(self, line: str) -> str:
        """Returns the text of a source: on one line, without invisible characters, lowercased if set."""
        line = without_surrogates(line)
        return repair(lowercased(line) if self._data.lowercases_sources else line)

    def source(self, line: str) -> str:
        """Returns the text that the model reads: repaired, with the tag of the settings if no symbol is in front."""
        text = self.repaired(line)
        is_complete = not self._config.tag or not text.strip() or self._has_head(text)
        return text if is_complete else f"{self._config.tag} {text}"

    def _has_head(self, text: str) -> bool:
        return bool(self._head_end and re.match(self._head_end, text))

    def repaired_output(self, text: str) -> str:
        """Returns the text of an output or a phrase of it: as `repaired`, but lowercased only if targets are."""
        text = without_surrogates(text)
        return repair(lowercased(text) if self._data.lowercases_targets else text)

    def target(self, source: str, output: str) -> str:
        """Returns the text that the model writes for a source with this output."""
        return self._truecase(self.task.target(self.repaired(source), self.repaired_output(output)))

    def _truecase(self, text: str) -> str:
        """Returns the beginning of an output as the model writes it."""
        truecaser = self._tokenizer.truecaser
        return truecaser.truecased(text) if truecaser else text

    def check_labels(self, output: str) -> None:
        """Raises an `InputError` if an output contains a label that the vocabulary does not have; names it."""
        if self._writes_labels:
            check_known(self.task.symbols([self.repaired_output(output)]), self._tokenizer)

    def check_source(self, text: str) -> None:
        """Checks a text from `source`; blank texts always pass.

        Raises:
            InputError: the text is not a valid source of the task, or lacks the tag of a target language, although the
                model has several.
        """
        if not text.strip():
            return
        self.task.check_source(text)
        if self._data.directions and all(self._data.tags) and not self._has_head(text):
            tags = " or ".join(dict.fromkeys(self._data.tags))
            raise InputError(f"this model has several target languages: begin the text with {tags}, or use --tag")

    def beginning(self, text: str) -> str:
        """Returns the part of a repaired text that is read: only the first part if the task `reads_beginnings`."""
        return [*split_text(text, self._fits), text][0] if self._reads_beginnings else text

    def encode_lines(self, lines: Sequence[str]) -> list[EncodedRequest]:
        """Encodes many lines without restrictions."""
        sentences = [self._sentences(line) for line in lines]
        texts = [self._texts(each) for each in sentences]
        ids = iter(self._source_tokenizer.encode_batch(list(itertools.chain.from_iterable(texts))))
        return [
            self._encode_line(line, line_sentences, [(text, next(ids)) for text in line_texts])
            for line, line_sentences, line_texts in zip(lines, sentences, texts, strict=True)
        ]

    def encode(self, request: Request) -> EncodedRequest:
        """Encodes one request.

        Raises:
            InputError: the request cannot be satisfied; names the field.
        """
        for field in OPTIONS:
            if getattr(request, field) and field not in self._options:
                raise InputError(f"this engine does not support {field}; use --engine=tensorflow")
        self.check_source(self.source(request.text))
        is_whole = bool(request.constraints) or len(find_sentences(request.prefix, self._data.target_language)) > 1
        sentences = [Sentence("", request.text)] if is_whole else self._sentences(request.text)
        texts = self._texts(sentences)
        encoded = dataclasses.replace(
            self._encode_line(request.text, sentences, [(text, self._source_tokenizer.encode(text)) for text in texts]),
            prefix=self.phrase("prefix", self._truecase(self.repaired_output(request.prefix)))
            if request.prefix
            else (),
            constraints=tuple(self._alternatives(constraint) for constraint in request.constraints),
            excluded=self._spellings_of(request.excluded),
        )
        self._check(request, encoded)
        return encoded

    def _sentences(self, line: str) -> list[Sentence]:
        """Splits a line into its sentences, or returns it as a single one; the texts are not repaired yet."""
        if not self.has_sentences:
            return [Sentence("", line)]
        sentences = find_sentences(without_surrogates(line), self._data.source_language)
        blank = blank_between(self._data.target_language)
        return [*sentences[:1], *(sentence._replace(before=sentence.before or blank) for sentence in sentences[1:])]

    def _texts(self, sentences: Sequence[Sentence]) -> list[str]:
        """Returns the repaired sentences; the head of the first one is put in front of the others."""
        texts = [(self.repaired if number else self.source)(each.text) for number, each in enumerate(sentences)]
        if len(texts) > 1 and self._head_end and (head := re.search(self._head_end, texts[0])):
            texts[1:] = [f"{head[0]} {text}" for text in texts[1:]]
        return texts

    def _encode_line(
        self, line: str, sentences: Sequence[Sentence], texts: Sequence[tuple[str, Sequence[int]]]
    ) -> EncodedRequest:
        """Encodes a line without restrictions; `texts` are its repaired sentences with their token ids."""
        parts = [self._parts(*pair) for pair in texts]
        counts = tuple((sentence, len(pieces)) for sentence, pieces in zip(sentences, parts, strict=True))
        text = texts[0][0] if len(texts) == 1 else self.source(line)
        return EncodedRequest(
            tuple(itertools.chain.from_iterable(parts)), text, sentences=counts if len(counts) > 1 else ()
        )

    def _parts(self, text: str, ids: Sequence[int]) -> tuple[Ids, ...]:
        """Returns the token ids of a sentence's parts, of which a blank sentence has none."""
        if not text.strip():
            return ()
        if len(ids) < self.max_source_length:
            return (tuple(ids),)
        pieces = split_context(text, self._head_end, self._fits) if self._head_end else split_text(text, self._fits)
        pieces = pieces[:1] if self._reads_beginnings else pieces
        return tuple(tuple(self._source_tokenizer.encode(piece)) for piece in pieces)

    def _fits(self, piece: str) -> bool:
        return len(self._source_tokenizer.encode(piece)) < self.max_source_length

    def _alternatives(self, constraint: str | tuple[str, ...]) -> tuple[Ids, ...]:
        if not constraint:
            raise InputError(f"constraints: {constraint!r} is blank")
        phrases = (constraint,) if isinstance(constraint, str) else constraint
        return tuple(dict.fromkeys(self.phrase("constraints", phrase) for phrase in phrases))

    def phrase(self, field: str, phrase: str) -> Ids:
        """Encodes a phrase of the output.

        Args:
            field: the field of the request, for error messages.
            phrase: the phrase; labels if the task's outputs are labels.

        Raises:
            InputError: the phrase is blank or the model cannot write it; names the field.
        """
        with named(field):
            text = self._symbols(phrase) if self._writes_labels else self.repaired_output(phrase)
        ids = tuple(self._tokenizer.encode(text))
        if not ids:
            raise InputError(f"{field}: {phrase!r} is blank")
        if min(ids) < _FIRST_ORDINARY_ID:
            raise InputError(f"{field}: {phrase!r} contains characters that the vocabulary cannot represent")
        if self._labels_words and len(ids) > 1 and field != "prefix":
            raise InputError(f"{field}: {phrase!r} contains labels of several words, which never occur side by side")
        return ids

    def _symbols(self, labels: str) -> str:
        symbols = [as_symbol(label) for label in self.repaired_output(labels).split(" ") if label]
        check_known(symbols, self._tokenizer)
        return " ".join(symbols)

    def _spellings_of(self, phrases: Sequence[str]) -> tuple[Ids, ...]:
        if phrases and not self._tokenizer.marks_words:
            raise InputError(
                "excluded: the vocabulary's entries do not mark the beginnings of words, so words cannot be excluded"
            )
        spellings: dict[Ids, None] = {}  # an ordered set
        for phrase in phrases:
            spellings[self.phrase("excluded", phrase)] = None
            if self._writes_labels:
                continue
            text = self.repaired_output(phrase)
            in_words = not text[:1].isalnum()
            text = text.replace(" ", BLANK)
            for start in (BLANK, "") if in_words else (BLANK,):
                spellings.update(dict.fromkeys(self._spellings(start + text)))
        return tuple(spellings)

    def _spellings(self, text: str) -> list[Ids]:
        """Returns the ways to spell a text with entries of the vocabulary, shortest first, at most `_MAX_SPELLINGS`."""
        if not self._ids_by_piece:
            ids = range(_FIRST_ORDINARY_ID, self._tokenizer.vocab_size)
            self._ids_by_piece.update(zip(self._tokenizer.pieces(ids), ids, strict=True))
            byte_ids = {byte: self._ids_by_piece.pop(f"<0x{byte:02X}>", None) for byte in range(256)}
            self._ids_by_byte.update({byte: id for byte, id in byte_ids.items() if id is not None})
        longest = max(map(len, self._ids_by_piece))
        spellings: list[list[Ids]] = [[()]]  # spellings of the first 0, 1, 2, ... characters
        for end in range(1, len(text) + 1):
            last = ((start, self._ids_of(text[start:end])) for start in range(max(0, end - longest), end))
            segmentations = [(*segmentation, *ids) for start, ids in last if ids for segmentation in spellings[start]]
            spellings.append(sorted(segmentations, key=len)[:_MAX_SPELLINGS])
        return spellings[-1]

    def _ids_of(self, text: str) -> Ids:
        """Returns the token of a text; for a single character without a token, its byte tokens; else nothing."""
        if text in self._ids_by_piece:
            return (self._ids_by_piece[text],)
        if len(text) > 1 or not self._ids_by_byte:
            return ()
        return tuple(self._ids_by_byte[byte] for byte in text.encode())

    def _check(self, request: Request, encoded: EncodedRequest) -> None:
        restrictions = [name for name in ("prefix", "constraints") if getattr(request, name)]
        first_parts = encoded.sentences[0][1] if encoded.sentences else len(encoded.parts)
        if restrictions and first_parts != 1:
            reason = "is too long and is translated in parts" if encoded.parts else "is blank"
            raise InputError(f"{restrictions[0]}: cannot be met, because the text {reason}")
        for name, value, off in (
            ("sampling", self._config.sampling, False),
            ("num_groups", self._config.num_groups, 1),
        ):
            if encoded.constraints and value != off:
                raise InputError(f"constraints cannot be combined with decode.{name}={str(value).lower()}")
        if self._labels_words and len(encoded.constraints) > 1:
            raise InputError("constraints: only one of the labels of words can be required")
        self._check_exclusions(encoded)
        if restrictions:
            self._check_length(encoded)

    def _check_exclusions(self, encoded: EncodedRequest) -> None:
        """Rejects a prefix or a constraint all of whose phrases contain an excluded phrase."""
        for name, phrases in [("prefix", (encoded.prefix,)), *(("constraints", each) for each in encoded.constraints)]:
            excluded = [self.exclusion(ids, encoded.excluded) for ids in phrases]
            if all(excluded):
                raise InputError(f"{name}: {self._text(phrases[0])!r} contains {excluded[0]!r}, which is excluded")

    def exclusion(self, ids: Ids, excluded: Sequence[Ids] = ()) -> str:
        """Returns the first excluded phrase that token ids contain, or "" if there is none.

        Args:
            ids: token ids of a phrase.
            excluded: spellings that are excluded in addition to the attribute `excluded`.
        """
        return next((self._text(phrase) for phrase in (*self.excluded, *excluded) if _contains(ids, phrase)), "")

    def _text(self, ids: Ids) -> str:
        """Decodes tokens to the form in which a request gives phrases or labels."""
        text = self._tokenizer.decode(ids)
        return " ".join(map(of_symbol, text.split(" "))) if self._writes_labels else text

    def limit(self, encoded: EncodedRequest) -> int:
        """Returns the maximum number of tokens of the translation of a request's first part, with its end symbol."""
        source = [*encoded.parts[0], EOS_ID]
        if self._form is None:
            return int(output_limits([len(source)], self._config)[0])
        return int(self._form.layout(np.array([source], np.int32)).num_chosen()[0]) + 1

    def num_needed(self, encoded: EncodedRequest) -> int:
        """Returns how many tokens the prefix, the shortest phrase of each unmet constraint, and the end symbol take."""
        return (
            len(encoded.prefix)
            + 1
            + sum(
                min(map(len, phrases))
                for phrases in encoded.constraints
                if not any(_contains(encoded.prefix, ids) for ids in phrases)
            )
        )

    def _check_length(self, encoded: EncodedRequest) -> None:
        limit, total = self.limit(encoded), self.num_needed(encoded)
        if len(encoded.prefix) >= limit:
            raise InputError(f"prefix: its {len(encoded.prefix)} tokens and an end symbol exceed the limit of {limit}")
        if total > limit:
            raise InputError(
                f"constraints: with the prefix and an end symbol, they have {total} tokens, above the limit of {limit}"
            )


def request_batches(requests: Sequence[EncodedRequest], tokens_per_batch: int) -> list[list[int]]:
    """Groups requests by their kinds of restrictions, then into batches of similar length as `length_batches` does.

    The length of a request is the larger of its source's and its constraints' tokens, because each step of a search
    compares every phrase with every hypothesis.

    Args:
        requests: requests of one part each.
        tokens_per_batch: limit of a batch's number of requests times its longest length.

    Returns:
        The indices of the requests of each batch.
    """
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for row, request in enumerate(requests):
        kinds.setdefault((bool(request.prefix), bool(request.constraints), bool(request.excluded)), []).append(row)
    batches = []
    for rows in kinds.values():
        lengths = [max(len(requests[row].parts[0]) + 1, _num_phrase_tokens(requests[row])) for row in rows]
        batches += [[rows[index] for index in batch] for batch in length_batches(lengths, tokens_per_batch)]
    return batches


def _num_phrase_tokens(request: EncodedRequest) -> int:
    return sum(len(phrase) for phrases in request.constraints for phrase in phrases)


def option_arrays(batch: Sequence[EncodedRequest]) -> dict[str, np.ndarray]:
    """Returns the options of `Searcher` for a batch of requests, which must have the same kinds of restrictions."""
    arrays = {
        "prefix": padded([request.prefix for request in batch]),
        "constraints": padded_constraints([request.constraints for request in batch]),
        "excluded": padded_phrases([request.excluded for request in batch], at_front=True),
    }
    return {name: array for name, array in arrays.items() if getattr(batch[0], name)}


def numbered(requests: Sequence[str | Request], encoder: RequestEncoder) -> Iterator[EncodedRequest]:
    """Encodes lines and requests and yields them in order; plain lines are encoded together, on all cores.

    Raises:
        InputError: a line is not a valid source of the task, or a request cannot be satisfied; names the line, counted
            from 1.
    """
    lines = iter(encoder.encode_lines([request for request in requests if isinstance(request, str)]))
    for number, request in enumerate(requests, start=1):
        with named(f"line {number:,}"):
            if isinstance(request, str):
                encoded = next(lines)
                encoder.check_source(encoded.text)
            else:
                encoded = encoder.encode(request)
        yield encoded


def _contains(ids: Ids, phrase: Ids) -> bool:
    return any(ids[start : start + len(phrase)] == phrase for start in range(len(ids) - len(phrase) + 1))
