"""Text in, text out: a tokenizer, a model and a search."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference import loading
from t2t_keras.inference.explain import (
    Explanation,
    WordAlignment,
    alignment_function,
    explanation_function,
)
from t2t_keras.inference.forced import ForcedScore, check_pairs, pair_batches, token_log_probs_function
from t2t_keras.inference.request import (
    EncodedRequest,
    Ids,
    Request,
    RequestEncoder,
    asked_arrays,
    numbered,
    request_batches,
)
from t2t_keras.inference.translation import Translation, found_translations, joined_lists
from t2t_keras.machine.streams import side_by_side
from t2t_keras.models.contract import SearchedModel, attention_views
from t2t_keras.search.batches import Progress, padded
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.engines import Engine
from t2t_keras.search.ensemble import Combination
from t2t_keras.search.scoring import normalised_score
from t2t_keras.search.searches import Searches
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.tokenizer import Tokenizer


class Translator:
    """Translates lines of text; each line's result depends on nothing but itself.

    A line is first repaired as training data are (`t2t_keras.text.repair.repair`):
    tabs, carriage returns and other breaks become blanks, invisible characters go. A
    line of more than `max_source_length` tokens is cut, at the end of a sentence where
    there is one, and its parts are translated one by one.

    The weights are read from the model at each call, so that a model in training can be used; one trace of the graph
    serves every batch. Another is made when the first request comes that asks for a prefix, for constraints or for
    excluded phrases, one for each kind. A `LiteModel` converts the model instead, once for each kind of search.

    Args:
        tokenizer: of the vocabulary that the model was trained with.
        model: what predicts; see `t2t_keras.models.contract`.
        config: of the search: beam or samples, scores, length limit, batch size.
        lowercase: whether lines are lowercased first, as the training data were.
        max_source_length: most tokens, end symbol included, of what is translated in one piece.
        excluded: words or phrases that no translation may contain; see `Request.excluded`.
        engine: what runs the searches; None means TensorFlow.

    Raises:
        InputError: a beam larger than the vocabulary, or an excluded phrase that is blank or cannot be spelled.
        ValueError: `max_source_length` below 2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model: SearchedModel,
        config: DecodeConfig | None = None,
        lowercase: bool = False,
        max_source_length: int = 256,
        excluded: Sequence[str] = (),
        engine: Engine | None = None,
    ) -> None:
        if max_source_length < 2:
            raise ValueError(f"max_source_length must be at least 2 (a token and the end), got {max_source_length}")
        self.tokenizer = tokenizer
        self.model = model
        self.config = config or DecodeConfig()
        if self.config.beam_size > tokenizer.vocab_size:
            raise InputError(
                f"decode.beam_size={self.config.beam_size} is more than the vocabulary's {tokenizer.vocab_size} entries"
            )
        self.lowercase = lowercase
        self.max_source_length = max_source_length
        self.excluded = tuple(excluded)
        self._encoder = RequestEncoder(tokenizer, self.config, lowercase, max_source_length, self.excluded)
        self._searches = Searches(model, self.config, self._encoder.excluded, engine)
        self._token_log_probs = token_log_probs_function(model)
        self._explained = explanation_function(model)
        self._alignment_attention = alignment_function(model)

    @classmethod
    def load(
        cls,
        model_dir: str | os.PathLike[str],
        checkpoint: str | None = None,
        config: DecodeConfig | None = None,
        excluded: Sequence[str] = (),
        engine: loading.EngineName = "tensorflow",
    ) -> "Translator":
        """The translator of a run, or of an exported model.

        Args:
            model_dir: the run's directory; or that of an export, or of one of its versions.
            checkpoint: which weights, as `t2t_keras.runs.load.load_model` takes it.
            config: None means what the run's `config.json` says, or the settings of the export.
            excluded: words or phrases that no translation may contain; see `Request.excluded`. Those of an
                export are added.
            engine: what computes the searches: "tensorflow"; "lite", TensorFlow Lite, faster on a CPU once it has
                converted the model, which takes seconds; or "lite_int8", the same with weights and activations
                of 8 bits, faster still, and some translations differ. See `t2t_keras.lite`.

        Raises:
            InputError: no run there, no such checkpoint, a vocabulary that does not fit, or `config.bfloat16` with
                another engine than "tensorflow".
        """
        return cls._of(loading.load_run(model_dir, checkpoint, engine), config, excluded, engine)

    @classmethod
    def load_ensemble(
        cls,
        members: Sequence[loading.Member],
        combination: Combination = "probabilities",
        config: DecodeConfig | None = None,
        excluded: Sequence[str] = (),
        engine: loading.EngineName = "tensorflow",
    ) -> "Translator":
        """The translator of several runs, or of several checkpoints, whose predictions are averaged.

        Args:
            members: pairs of a run's directory and a checkpoint, as `load` takes them; a `loading.Member` is one.
            combination: "probabilities" or "log_probabilities", what is averaged.
            config: None means what the first run's `config.json` says.
            excluded: words or phrases that no translation may contain.
            engine: what computes the searches, as of `load`.

        Raises:
            InputError: a member cannot be loaded, or does not go with the first: another vocabulary, or trained
                on text of another case; or `config.bfloat16` with another engine than "tensorflow".
            ValueError: no member, or an unknown combination.
        """
        return cls._of(loading.load_ensemble(members, combination, engine), config, excluded, engine)

    @classmethod
    def _of(
        cls, loaded: loading.Loaded, config: DecodeConfig | None, excluded: Sequence[str], engine: loading.EngineName
    ) -> "Translator":
        data, config = loaded.config.data, config or loaded.config.decode
        if config.bfloat16 and engine != "tensorflow":
            raise InputError(f"decode.bfloat16=true does not go together with the engine {engine}")
        settings = (config, data.lowercase, max(2, data.max_length))
        excluded = tuple(dict.fromkeys((*loaded.excluded, *excluded)))
        return cls(loaded.tokenizer, loaded.model, *settings, excluded, loaded.engine)

    def translate(
        self, lines: Iterable[str | Request], on_progress: Progress | None = None, scored: bool = True
    ) -> list[Translation]:
        """Translates lines, all at once in memory.

        Args:
            lines: any text; line breaks within one count as blanks. A `Request` also says what the
                translation must be like.
            on_progress: called after each batch with how many parts are done, and how many there are: one
                a line, but none for a blank and several for a very long one.
            scored: whether scores are wanted. Without them greedy search is faster, and `score` and `log_prob` may
                be NaN.

        Returns:
            One translation a line, in order: the best, or with `config.sampling` the first sample.

        Raises:
            InputError: a request that cannot be met; names its line.
        """
        encoded = list(numbered(list(lines), self._encoder))
        return [best for best, *_ in self._translations(encoded, 1, on_progress, scored)]

    def translate_nbest(
        self,
        lines: Iterable[str | Request],
        num_best: int,
        on_progress: Progress | None = None,
        scored: bool = True,
    ) -> list[list[Translation]]:
        """As `translate`, but the `num_best` best hypotheses of each line, or its first samples.

        Args:
            lines: as of `translate`.
            num_best: at most `config.beam_size`.
            on_progress: as of `translate`.
            scored: as of `translate`.

        Returns:
            Of each line the hypotheses that there are, at least one; the first is that of `translate`.

        Raises:
            InputError: as of `translate`, or `num_best` is below 1 or above the beam.
        """
        if not 1 <= num_best <= self.config.beam_size:
            raise InputError(f"num_best must be in [1, decode.beam_size={self.config.beam_size}], got {num_best}")
        return self._translations(list(numbered(list(lines), self._encoder)), num_best, on_progress, scored)

    def check(self, request: str | Request) -> None:
        """Raises what `translate` would raise of one line, but names no line; costs no search.

        Raises:
            InputError: a request that cannot be met.
        """
        if not isinstance(request, str):
            self._encoder.encode(request)

    def translate_stream(self, lines: Iterable[str | Request], chunk_lines: int = 5000) -> Iterator[Translation]:
        """`translate` for input of any size: reads, translates and gives back a chunk after the other.

        Args:
            lines: as of `translate`.
            chunk_lines: lines held in memory at a time. The more, the less padding.

        Raises:
            InputError: as of `translate`; the line is counted from the start of its chunk.
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
        """What the model thinks of given translations, with the length penalty of the settings, but no coverage.

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
        return self.score_tokens(self._encoded(lines), self._encoded(translations), on_progress)

    def score_tokens(
        self, sources: Sequence[Ids], targets: Sequence[Ids], on_progress: Progress | None = None
    ) -> list[ForcedScore]:
        """`score` of token ids, such as `Translation.source_ids` and `token_ids`: of just what the search found.

        Args:
            sources: of each sentence, end symbol included.
            targets: of each translation.
            on_progress: as of `score`.

        Raises:
            InputError: as of `score`.
        """
        check_pairs(sources, targets)
        scores: dict[int, ForcedScore] = {}
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch, on_progress):
            for row, log_probs in zip(rows, self._token_log_probs(*batch).numpy(), strict=True):
                scores[row] = self._forced_score(targets[row], log_probs[: len(targets[row])])
        return [scores[row] for row in range(len(sources))]

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
            InputError: as of `score`; the model does not give its attention out; or an ensemble whose members
                differ in layers or heads.
        """
        return self.explain_tokens(self._encoded(lines), self._encoded(translations), on_progress)

    def explain_tokens(
        self, sources: Sequence[Ids], targets: Sequence[Ids], on_progress: Progress | None = None
    ) -> list[Explanation]:
        """`explain` of token ids, such as `Translation.source_ids` and `token_ids`: of just what the search found.

        Args:
            sources: of each sentence, end symbol included.
            targets: of each translation.
            on_progress: as of `explain`.

        Raises:
            InputError: as of `explain`.
        """
        attention_views(self.model)  # raises if it has none
        check_pairs(sources, targets)
        explanations: dict[int, Explanation] = {}
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch, on_progress):
            for row, *found in zip(rows, *(values.numpy() for values in self._explained(*batch)), strict=True):
                source_pieces, target_pieces = (self.tokenizer.pieces(side[row]) for side in (sources, targets))
                explanations[row] = Explanation.of(source_pieces, target_pieces, *found)
        return [explanations[row] for row in range(len(sources))]

    def align_tokens(
        self, sources: Sequence[Ids], targets: Sequence[Ids], on_progress: Progress | None = None
    ) -> list[WordAlignment]:
        """The word alignments that `explain_tokens` would give, without its attention ever lying in memory.

        Args:
            sources: of each sentence, end symbol included.
            targets: of each translation.
            on_progress: as of `explain`.

        Raises:
            InputError: as of `score`.
        """
        attention_views(self.model)  # raises if it has none
        check_pairs(sources, targets)
        aligned: dict[int, WordAlignment] = {}
        for rows, *batch in pair_batches(sources, targets, self.config.tokens_per_batch, on_progress):
            for row, weights in zip(rows, self._alignment_attention(*batch).numpy(), strict=True):
                source_pieces, target_pieces = (self.tokenizer.pieces(side[row]) for side in (sources, targets))
                aligned[row] = WordAlignment.of(source_pieces, target_pieces, weights)
        return [aligned[row] for row in range(len(sources))]

    def _encoded(self, lines: Sequence[str]) -> list[Ids]:
        """The token ids of one side of given translations, end symbols included."""
        repaired = [self.repaired(line) for line in lines]
        return [(*ids, EOS_ID) for ids in self.tokenizer.encode_batch(repaired)]

    def _forced_score(self, target: Ids, log_probs: np.ndarray) -> ForcedScore:
        total = float(log_probs.sum(dtype=np.float64))
        settings = self.config.length_penalty, self.config.length_normalization
        score = float(normalised_score(total, len(target), *settings))
        return ForcedScore(total, score, tuple(self.tokenizer.pieces(target)), tuple(map(float, log_probs)))

    def search(self, source_ids: np.ndarray | tf.Tensor) -> SearchResult:
        """The beam search over encoded sentences.

        Args:
            source_ids: int32 [batch, source_len], each sentence with its end symbol, then padding.

        Returns:
            `config.beam_size` hypotheses a sentence, best first.
        """
        return self._searches(source_ids)

    def repaired(self, line: str) -> str:
        """A line as the tokenizer gets it: on one line, without invisible characters, lowercased if need be."""
        return self._encoder.repaired(line)

    def _translations(
        self, encoded: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Up to `num_best` translations of each line."""
        parts = [dataclasses.replace(request, parts=(ids,)) for request in encoded for ids in request.parts]
        found = iter(self._translate_parts(parts, num_best, on_progress, scored))
        lines = [list(itertools.islice(found, len(request.parts))) for request in encoded]
        return [joined_lists(line, num_best, by_score=not self.config.sampling) for line in lines]

    def _translate_parts(
        self, parts: Sequence[EncodedRequest], num_best: int, on_progress: Progress | None, scored: bool
    ) -> list[list[Translation]]:
        """Up to `num_best` translations of each of requests of one part."""
        translations: list[list[Translation]] = [[]] * len(parts)
        done = 0
        batches = request_batches(parts, self.config.tokens_per_batch)
        found = side_by_side(lambda rows: self._hypotheses([parts[row] for row in rows], num_best, scored), batches)
        with contextlib.closing(found):
            for rows, batch_translations in zip(batches, found, strict=True):
                for row, hypotheses in zip(rows, batch_translations, strict=True):
                    translations[row] = hypotheses
                done += len(rows)
                if on_progress is not None:
                    on_progress(done, len(parts))
        return translations

    def _hypotheses(self, parts: Sequence[EncodedRequest], num_best: int, scored: bool) -> list[list[Translation]]:
        """Translations of each part of one batch, all of which need the same of the search."""
        sources = [(*request.parts[0], EOS_ID) for request in parts]
        result = self._searches(padded(sources), num_best == 1, scored, **asked_arrays(parts))
        return found_translations(result, sources, self.tokenizer, num_best)
