"""Text in, text out: a tokenizer, a model and a search."""

import concurrent.futures
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from t2t_keras.config import EOS_ID, PAD_ID, DecodeConfig
from t2t_keras.data.cleaning import repair
from t2t_keras.data.tokenizer import Tokenizer
from t2t_keras.decoding import loading
from t2t_keras.decoding.batches import Progress, length_batches, padded
from t2t_keras.decoding.beam_search import SearchResult, beam_search
from t2t_keras.decoding.ensemble import Combination
from t2t_keras.decoding.explain import Explanation, explanation_function
from t2t_keras.decoding.forced import ForcedScore, check_pairs, pair_batches, token_log_probs_function
from t2t_keras.decoding.scoring import normalised_score
from t2t_keras.decoding.splitting import split_text
from t2t_keras.streams import num_streams


class StepModel(Protocol):
    """What a Translator asks of a model; `t2t_keras.model.Transformer` has it."""

    def encode(self, source: tf.Tensor) -> Any: ...

    def start_cache(self, source: tf.Tensor, memory: Any, beam_size: int) -> dict[str, Any]: ...

    def decode_step(self, token_ids: tf.Tensor, cache: dict[str, Any]) -> tuple[tf.Tensor, dict[str, Any]]: ...


@dataclasses.dataclass(frozen=True)
class Translation:
    """What became of one line.

    Attributes:
        text: the translation, without line breaks; empty for a blank line.
        score: log-probability over length penalty; 0 for a blank line, the sum over its parts for a long one.
        log_prob: total log-probability, summed over parts.
        num_tokens: tokens that were generated, end symbols counted.
        num_parts: pieces that the line was translated in: 0 if it was blank, above 1 if it was too long for one.
    """

    text: str
    score: float = 0.0
    log_prob: float = 0.0
    num_tokens: int = 0
    num_parts: int = 0


class Translator:
    """Translates lines of text; each line's result depends on nothing but itself.

    A line is first repaired as training data are (`t2t_keras.data.cleaning.repair`):
    tabs, carriage returns and other breaks become blanks, invisible characters go. A
    line of more than `max_source_length` tokens is cut, at the end of a sentence where
    there is one, and its parts are translated one by one.

    The weights are read from the model at each call, so that a model in
    training can be used; one trace of the graph serves every batch.

    Args:
        tokenizer: of the vocabulary that the model was trained with.
        model: a `Transformer` or anything else with its decoding methods.
        config: beam size, length penalty, length limit, batch size.
        lowercase: whether lines are lowercased first, as the training data were.
        max_source_length: most tokens, end symbol included, of what is translated in one piece.

    Raises:
        ValueError: `max_source_length` below 2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model: StepModel,
        config: DecodeConfig | None = None,
        lowercase: bool = False,
        max_source_length: int = 256,
    ) -> None:
        if max_source_length < 2:
            raise ValueError(f"max_source_length must be at least 2 (a token and the end), got {max_source_length}")
        self.tokenizer = tokenizer
        self.model = model
        self.config = config or DecodeConfig()
        self.lowercase = lowercase
        self.max_source_length = max_source_length
        signature = [tf.TensorSpec([None, None], tf.int32, name="source_ids")]
        self._compiled_search = tf.function(self._search, input_signature=signature, autograph=False)
        self._token_log_probs = token_log_probs_function(model)
        self._explained = explanation_function(model)

    @classmethod
    def load(
        cls, model_dir: str | os.PathLike[str], checkpoint: str | None = None, config: DecodeConfig | None = None
    ) -> "Translator":
        """The translator of a run.

        Args:
            model_dir: the run's directory.
            checkpoint: which weights, as `t2t_keras.run.load_model` takes it.
            config: None means what the run's `config.json` says.

        Raises:
            InputError: no run there, no such checkpoint, or a vocabulary that does not fit.
        """
        return cls._of(loading.load_run(model_dir, checkpoint), config)

    @classmethod
    def load_ensemble(
        cls,
        members: Sequence[loading.Member],
        combination: Combination = "probabilities",
        config: DecodeConfig | None = None,
    ) -> "Translator":
        """The translator of several runs, or of several checkpoints, whose predictions are averaged.

        Args:
            members: pairs of a run's directory and a checkpoint, as `load` takes them; a `loading.Member` is one.
            combination: "probabilities" or "log_probabilities", what is averaged.
            config: None means what the first run's `config.json` says.

        Raises:
            InputError: a member cannot be loaded, or does not go with the first: another vocabulary, or trained
                on text of another case.
            ValueError: no member, or an unknown combination.
        """
        return cls._of(loading.load_ensemble(members, combination), config)

    @classmethod
    def _of(cls, loaded: loading.Loaded, config: DecodeConfig | None) -> "Translator":
        data = loaded.config.data
        settings = (config or loaded.config.decode, data.lowercase, max(2, data.max_length))
        return cls(loaded.tokenizer, loaded.model, *settings)

    def translate(self, lines: Iterable[str], on_progress: Progress | None = None) -> list[Translation]:
        """Translates lines, all at once in memory.

        Args:
            lines: any text; line breaks within one count as blanks.
            on_progress: called after each batch with how many parts are done, and how many there are: one
                a line, but none for a blank and several for a very long one.

        Returns:
            One translation a line, in order.
        """
        parts = [self._parts(line) for line in self._encoded(lines)]
        texts = self._translate_parts(list(itertools.chain.from_iterable(parts)), on_progress)
        remaining = iter(texts)
        return [_joined(list(itertools.islice(remaining, len(line)))) for line in parts]

    def translate_stream(self, lines: Iterable[str], chunk_lines: int = 5000) -> Iterator[Translation]:
        """`translate` for input of any size: reads, translates and gives back a chunk after the other.

        Args:
            lines: any text.
            chunk_lines: lines held in memory at a time. The more, the less padding.

        Raises:
            ValueError: `chunk_lines` below 1.
        """
        if chunk_lines < 1:
            raise ValueError(f"chunk_lines must be positive, got {chunk_lines}")
        remaining = iter(lines)
        while chunk := list(itertools.islice(remaining, chunk_lines)):
            yield from self.translate(chunk)

    def score(
        self, lines: Sequence[str], translations: Sequence[str], on_progress: Progress | None = None
    ) -> list[ForcedScore]:
        """What the model thinks of given translations, with the length penalty of the settings.

        Both sides are repaired as lines to translate are. A translation that the
        search found gets the score that the search gave it, if the tokenizer cuts
        its text into the tokens that the search chose.

        Args:
            lines: the sources; a blank one is scored as nothing but an end symbol.
            translations: one a line.
            on_progress: called after each batch with how many lines are done, and how many there are.

        Raises:
            InputError: unequal numbers of lines, or a line of more than `MAX_SCORED_LENGTH` tokens.
        """
        sources, targets = self._encoded_pairs(lines, translations)
        scores: list[ForcedScore | None] = [None] * len(lines)
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch, on_progress):
            for row, log_probs in zip(rows, self._token_log_probs(*batch).numpy(), strict=True):
                scores[row] = self._forced_score(targets[row], log_probs[: len(targets[row])])
        return scores

    def explain(
        self, lines: Sequence[str], translations: Sequence[str], on_progress: Progress | None = None
    ) -> list[Explanation]:
        """How translations come from their sources: attention, word alignment, and each token's probability.

        Takes the place of `score`, with the same probabilities, where attention is
        asked for as well. All that is returned is held in memory: layers * heads *
        source tokens * target tokens * 4 bytes a line.

        Args:
            lines: the sources.
            translations: one a line, made by the search or by anybody.
            on_progress: called after each batch with how many lines are done, and how many there are.

        Raises:
            InputError: as of `score`; or an ensemble whose members differ in layers or heads.
            ValueError: the model does not give its attention out.
        """
        if not hasattr(self.model, "logits_and_cross_attention"):
            raise ValueError(f"model must have logits_and_cross_attention, {type(self.model).__name__} has not")
        sources, targets = self._encoded_pairs(lines, translations)
        explanations: list[Explanation | None] = [None] * len(lines)
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch, on_progress):
            for row, *found in zip(rows, *(values.numpy() for values in self._explained(*batch)), strict=True):
                pieces = (self.tokenizer.pieces(side[row]) for side in (sources, targets))
                explanations[row] = Explanation.of(*pieces, *found)
        return explanations

    def _encoded_pairs(
        self, lines: Sequence[str], translations: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The token ids of both sides of given translations, end symbols included."""
        sources, targets = ([[*ids, EOS_ID] for _, ids in self._encoded(side)] for side in (lines, translations))
        check_pairs(sources, targets)
        return sources, targets

    def _forced_score(self, target: list[int], log_probs: np.ndarray) -> ForcedScore:
        total = float(log_probs.sum(dtype=np.float64))
        score = float(normalised_score(total, len(target), self.config.length_penalty))
        return ForcedScore(total, score, tuple(self.tokenizer.pieces(target)), tuple(map(float, log_probs)))

    def search(self, source_ids: np.ndarray | tf.Tensor) -> SearchResult:
        """The beam search over encoded sentences.

        Args:
            source_ids: int32 [batch, source_len], each sentence with its end symbol, then padding.

        Returns:
            `config.beam_size` hypotheses a sentence, best first.
        """
        return self._compiled_search(source_ids)

    def repaired(self, line: str) -> str:
        """A line as the tokenizer gets it: on one line, without invisible characters, lowercased if need be."""
        # Lone surrogates cannot be encoded; they come from bytes that were no UTF-8.
        line = line.encode("utf-8", "replace").decode("utf-8")
        return repair(line.lower() if self.lowercase else line)

    def _search(self, source_ids: tf.Tensor) -> SearchResult:
        lengths = tf.math.count_nonzero(source_ids != PAD_ID, axis=1, dtype=tf.int32)
        # Both lengths count an end symbol: as many words as the source has, times the factor, and the offset.
        scaled = tf.math.ceil(self.config.max_length_factor * tf.cast(lengths, tf.float32))
        max_lengths = tf.cast(scaled, tf.int32) + self.config.max_length_offset
        memory = self.model.encode(source_ids)
        cache = self.model.start_cache(source_ids, memory, self.config.beam_size)
        return beam_search(
            self.model.decode_step,
            cache,
            max_lengths,
            self.config.beam_size,
            self.config.length_penalty,
            self.config.min_length,
            self.config.patience,
        )

    def _encoded(self, lines: Iterable[str]) -> list[tuple[str, list[int]]]:
        """Every line as repaired text and its token ids."""
        texts = [self.repaired(line) for line in lines]
        return list(zip(texts, self.tokenizer.encode_batch(texts), strict=True))

    def _parts(self, line: tuple[str, list[int]]) -> list[list[int]]:
        """The token ids, without end symbols, of each piece that a line is translated in."""
        text, ids = line
        if not text.strip():
            return []
        if len(ids) < self.max_source_length:
            return [ids]
        pieces = split_text(text, lambda piece: len(self.tokenizer.encode(piece)) < self.max_source_length)
        return [self.tokenizer.encode(piece) for piece in pieces]

    def _translate_parts(self, parts: Sequence[list[int]], on_progress: Progress | None) -> list[Translation]:
        translations: list[Translation] = [Translation("")] * len(parts)
        done = 0
        batches = list(length_batches([len(ids) + 1 for ids in parts], self.config.tokens_per_batch))
        with concurrent.futures.ThreadPoolExecutor(num_streams()) as executor:
            try:
                found = executor.map(lambda rows: self._best([parts[row] for row in rows]), batches)
                for rows, batch_translations in zip(batches, found, strict=True):
                    for row, translation in zip(rows, batch_translations, strict=True):
                        translations[row] = translation
                    done += len(rows)
                    if on_progress is not None:
                        on_progress(done, len(parts))
            finally:
                executor.shutdown(cancel_futures=True)  # an interrupt need not wait for what has not begun
        return translations

    def _best(self, parts: Sequence[list[int]]) -> list[Translation]:
        """The best translation of each part of one batch."""
        result = self.search(padded([[*ids, EOS_ID] for ids in parts]))
        best = SearchResult(*(values[:, 0].numpy() for values in result))
        texts = self.tokenizer.decode_batch(best.token_ids)
        numbers = zip(texts, best.scores, best.log_probs, best.lengths, strict=True)
        # Byte fallback can spell any character, so also a line break.
        return [
            Translation(repair(text), float(score), float(log_prob), int(length), 1)
            for text, score, log_prob, length in numbers
        ]


def _joined(parts: Sequence[Translation]) -> Translation:
    """The translation of a line from those of its parts."""
    if len(parts) == 1:
        return parts[0]
    return Translation(
        " ".join(part.text for part in parts if part.text),
        sum(part.score for part in parts),
        sum(part.log_prob for part in parts),
        sum(part.num_tokens for part in parts),
        len(parts),
    )
