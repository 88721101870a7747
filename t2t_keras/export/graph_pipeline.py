"""The stages of a translation in the graph: text -> token ids -> hypotheses -> text."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_attention import AttentionSizes, Choice, queries_and_keys, select_attention
from t2t_keras.export.graph_batches import in_batches, widened
from t2t_keras.export.graph_sentences import SentenceTexts, find_sentences
from t2t_keras.export.graph_splitting import split_contexts, split_texts
from t2t_keras.export.graph_text import on_one_line, re2, repaired, stripped
from t2t_keras.export.graph_truecase import GraphTruecaser, capitalised
from t2t_keras.export.joining import Hypotheses, Joining, join_parts, select_answers
from t2t_keras.export.limits import assert_line_lengths, assert_size
from t2t_keras.export_contract import LOWEST
from t2t_keras.inference.forced import hidden_log_probs
from t2t_keras.inference.request import RequestEncoder, head_end
from t2t_keras.inference.translator import Translator
from t2t_keras.models.contract import ATTENTION, Attentions, attention_views
from t2t_keras.search.searcher import Searcher, output_limits
from t2t_keras.symbols import EOS_ID, PAD_ID, UNK_ID
from t2t_keras.tasks.task import Task
from t2t_keras.text.sentences import blank_between

# Inputs of the stages.
_TEXTS = tf.TensorSpec([None], tf.string)
_SEEDS = tf.TensorSpec([None], tf.int64)
_LENGTHS = tf.TensorSpec([None], tf.int32)
_IDS = tf.TensorSpec([None, None], tf.int32)


class Sentences(NamedTuple):
    """Sentences as padded token ids.

    Attributes:
        ids: int32 [sentences, length], each sentence with its end symbol, then padding.
        lengths: int32 [sentences], end symbols included.
    """

    ids: tf.Tensor
    lengths: tf.Tensor

    def select(self, rows: tf.Tensor) -> "Sentences":
        """Returns the sentences with indices `rows`, int32 [chosen], padded only to the longest of them."""
        ids, lengths = tf.gather(self.ids, rows), tf.gather(self.lengths, rows)
        return Sentences(ids[:, : longest(lengths)], lengths)


class Parts(NamedTuple):
    """The parts in which lines are translated.

    Attributes:
        sentences: the token ids of each part.
        rows: int32 [parts], the index of each part's line, ascending; a blank line has no parts.
        before: string [parts], the white space in front of each part's translation; `join_parts` drops the space in
            front of a line's first part.
        begins: bool [parts], whether the part begins a sentence, or a line that is translated as a whole.
    """

    sentences: Sentences
    rows: tf.Tensor
    before: tf.Tensor
    begins: tf.Tensor


class TokenHypotheses(NamedTuple):
    """The token ids and scores of the hypotheses of a search, up to k per part.

    Attributes:
        token_ids: int32 [parts, k, length], end symbols included, then zeros.
        scores: float32 [parts, k].
        log_probs: float32 [parts, k].
        lengths: int32 [parts, k], end symbols included; 0 in an unused slot.
    """

    token_ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


class Pipeline:
    """The stages of a translator with a single model, as functions of the graph.

    Most stages are `tf.function`s that all signatures share, so that they are traced, stored and loaded once.

    Args:
        translator: the translator.
        weights: the exported variables, which replace the model's own.
        tokenizers: the graph's tokenizers of sources and of targets.

    Attributes:
        config: the settings of the search.
        data: the settings of the training data.
        source_pieces: maps token ids of sources, int32 [tokens], to the vocabulary's entries, string [tokens].
        target_pieces: maps token ids of targets in the same way.
        has_sentences: whether lines are translated sentence by sentence.
        max_source_length: maximum number of tokens of a part, end symbol included.
        truecaser: the words that are truecased, whose table must be stored with the graph; None if targets keep their
            case. If set, the translation of each sentence gets a capital first letter.
        has_attention: whether the model offers attention.
        supports_streaming: whether a search can be streamed, because its best hypothesis so far is the beginning of an
            output. This requires outputs that are free text and not post-processed, a task without a context, and no
            sampling.
        supports_prefix: whether a request may give the beginning of an output. This requires `supports_streaming`, no
            excluded phrases, and a vocabulary that marks words.
        supports_constraints: whether a request may require phrases. This requires outputs that are free text, no
            sampling, a single beam group, and a vocabulary that marks words.
    """

    def __init__(self, translator: Translator, weights: Weights, tokenizers: tuple[Any, Any]) -> None:
        self.config = translator.config
        self._model = translator.model
        self.has_attention = ATTENTION in self._model.capabilities
        self._weights = weights
        self._source_tokenizer, self._target_tokenizer = tokenizers
        words = translator.tokenizer.truecaser
        self.truecaser = GraphTruecaser(words) if words else None
        self.data = translator.data
        encoder = RequestEncoder(translator.tokenizer, self.config, translator.data, translator.settings.excluded)
        self._task, self.max_source_length = encoder.task, encoder.max_source_length
        self.has_sentences = encoder.has_sentences
        self._head_end = head_end(self._task, translator.tokenizer)
        sides = (translator.tokenizer.source, translator.tokenizer)
        source_pieces, target_pieces = (side.pieces(range(side.vocab_size)) for side in sides)
        self._target_vocab_size = len(target_pieces)
        self.target_pieces = _lookup(target_pieces)
        self.source_pieces = self.target_pieces if source_pieces == target_pieces else _lookup(source_pieces)
        excluded = encoder.excluded
        form = self._form = self._task.form(translator.tokenizer)
        self._within_words = translator.tokenizer.continuations
        searcher = self._searcher = Searcher(self._model, self.config, excluded, form, self._within_words)
        sampling = Searcher(self._model, _sampling(self.config), excluded, form=form)

        def search(sentences: Sentences, num_best: tf.Tensor) -> TokenHypotheses:
            """Finds the `num_best` best hypotheses of each sentence or, if the settings say so, draws samples."""
            return self._search_batches(sentences, lambda ids, _: searcher.best(ids, num_best), num_best)

        def draw(sentences: Sentences, seeds: tf.Tensor) -> TokenHypotheses:
            """Draws one sample of each sentence with its seed; `seeds` are int64 [sentences]."""
            return self._search_batches(sentences, lambda ids, rows: sampling.sample(ids, tf.gather(seeds, rows)), 1)

        sentences, k = Sentences(_IDS, _LENGTHS), self.config.beam_size
        self.parts = _stage(self._parts_of, _TEXTS)
        self._search = _stage(self._with_weights(search), sentences, tf.TensorSpec([], tf.int32))
        self.sample = _stage(self._with_weights(draw), sentences, _SEEDS)
        self._hidden = _stage(self._with_weights(self._hidden_of), _IDS, _IDS)
        self.log_probs = _stage(self._with_weights(self._log_probs_of), sentences, sentences)
        self.attention = _stage(self._with_weights(self._attention_of), sentences, sentences)
        self._all_attention = _stage(self._with_weights(self._all_attention_of), _IDS, _IDS)
        self.chosen_attention = _stage(self._chosen_attention_of, sentences, sentences, Choice(_LENGTHS, _LENGTHS))
        self._join = {size: self._joining(size) for size in {1, k}}
        results = (tf.TensorSpec([None, None], dtype) for dtype in (tf.string, tf.float32))
        finishes = type(self._task).finish_in_graph is not Task.finish_in_graph
        self._finish = _stage(self._finished_of, _TEXTS, *results) if finishes else None
        self.supports_streaming = not (finishes or form or self._task.context or self.config.sampling)
        marks_words, in_groups = translator.tokenizer.marks_words, self.config.num_groups > 1
        self.supports_prefix = self.supports_streaming and marks_words and not excluded
        self.supports_constraints = marks_words and not (form or self.config.sampling or in_groups)

    def _parts_of(self, lines: tf.Tensor) -> Parts:
        """Splits lines, string [lines], into the parts to translate."""
        if not self.has_sentences:
            return self._parts_of_texts(self._repair(lines))
        return self.parts_of_sentences(self.sentences_of(lines))

    def sentences_of(self, lines: tf.Tensor) -> SentenceTexts:
        """Splits lines, string [lines], into repaired sentences with the heads of their lines."""
        result = find_sentences(lines, self.data.source_language, blank_between(self.data.target_language))
        texts = on_one_line(result.texts, self.data.lowercases_sources)
        texts = tf.where(result.is_first, self._with_tag(texts), texts)
        return result._replace(texts=texts).with_heads(self._head_end)

    def parts_of_sentences(self, sentences: SentenceTexts) -> Parts:
        """Splits sentences into the parts to translate; the parts' `rows` are those of the sentences' lines."""
        parts = self._parts_of_texts(sentences.texts)
        before = tf.where(parts.begins, tf.gather(sentences.before, parts.rows), " ")
        return parts._replace(rows=tf.cast(tf.gather(sentences.rows, parts.rows), tf.int32), before=before)

    def _parts_of_texts(self, texts: tf.Tensor) -> Parts:
        """Splits repaired sentences or lines, string [texts], into parts that fit; `rows` are the texts' indices."""
        ids = self._source_tokenizer.tokenize(texts)  # --> [texts, ragged]
        not_blank = stripped(texts) != ""
        is_long = not_blank & (ids.row_lengths() >= self.max_source_length)

        def encode_whole() -> tuple[tf.Tensor, ...]:
            rows = tf.where(not_blank)[:, 0]
            row_ids = tf.gather(ids, rows)
            return row_ids.flat_values, row_ids.row_lengths(), rows

        def cut() -> tuple[tf.Tensor, ...]:
            long_rows = tf.where(is_long)[:, 0]
            long_texts, end = tf.gather(texts, long_rows), self._head_end
            pieces = split_contexts(long_texts, end, self._fits) if end else split_texts(long_texts, self._fits)
            pieces = pieces.beginnings() if self._task.reads_beginnings else pieces
            short_rows = tf.where(not_blank & ~is_long)[:, 0]
            rows = tf.concat([short_rows, tf.gather(long_rows, pieces.rows)], axis=0)
            order = tf.argsort(rows, stable=True)
            all_texts = tf.concat([tf.gather(texts, short_rows), pieces.texts], axis=0)
            all_ids = self._source_tokenizer.tokenize(tf.gather(all_texts, order))
            return all_ids.flat_values, all_ids.row_lengths(), tf.gather(rows, order)

        flat, lengths, rows = tf.cond(tf.reduce_any(is_long), cut, encode_whole)
        sentences = _with_ends(tf.RaggedTensor.from_row_lengths(flat, lengths))
        begins = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(rows)]
        return Parts(sentences, tf.cast(rows, tf.int32), tf.fill(tf.shape(rows), " "), begins)

    def sources(self, lines: tf.Tensor) -> Sentences:
        """Encodes the input "text", string [lines], for scoring.

        Each line stays in one piece. An assertion in the graph rejects lines of more than `MAX_LINE_TOKENS`.
        """
        return self._sentences(self._repair(lines), "text", self._source_tokenizer)

    def targets(self, sources: tf.Tensor, lines: tf.Tensor) -> Sentences:
        """Encodes the texts that the model writes for the inputs "text" and "target"; the limits of `sources` apply."""
        texts = self._task.target_in_graph(self._repair(sources), self._repair_output(lines))
        return self._sentences(self._truecase(texts), "target", self._target_tokenizer)

    def _repair(self, lines: tf.Tensor) -> tf.Tensor:
        """Computes `RequestEncoder.source` for tensors."""
        return self._with_tag(repaired(lines, self.data.lowercases_sources))

    def _with_tag(self, texts: tf.Tensor) -> tf.Tensor:
        """Puts the tag of the settings in front of texts that are not blank and do not begin with a symbol."""
        if not self.config.tag:
            return texts
        has_head = tf.strings.regex_full_match(texts, f"(?s)(?:{re2(self._head_end)}).*") | (stripped(texts) == "")
        return tf.where(has_head, texts, tf.strings.join([self.config.tag, " ", texts]))

    def _repair_output(self, texts: tf.Tensor) -> tf.Tensor:
        """Computes `RequestEncoder.repaired_output` for tensors."""
        return repaired(texts, self.data.lowercases_targets)

    def _truecase(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the beginnings of outputs as the model writes them."""
        return self.truecaser.truecased(texts) if self.truecaser else texts

    def _sentences(self, texts: tf.Tensor, name: str, tokenizer: Any) -> Sentences:
        ids = tokenizer.tokenize(texts)
        with tf.control_dependencies([assert_line_lengths(name, ids.row_lengths() + 1, "scored")]):
            return _with_ends(ids.with_flat_values(tf.identity(ids.flat_values)))

    def output_limits(self, sentences: Sentences) -> tf.Tensor:
        """Returns the maximum number of tokens of each sentence's translation, int32 [sentences]."""
        limits = output_limits(sentences.lengths, self.config)
        return limits if self._form is None else self._form.limits(sentences.lengths)

    def search(self, sentences: Sentences, only_best: bool) -> TokenHypotheses:
        """Finds one or `config.beam_size` hypotheses of each sentence or, if the settings say so, draws samples."""
        shape = [tf.size(sentences.lengths), 1 if only_best else self.config.beam_size]
        token_ids, *numbers = self._search(sentences, tf.constant(shape[1]))
        # The number of hypotheses is set here, because the search returns none if there are no sentences.
        token_ids = tf.reshape(token_ids, [*shape, tf.shape(token_ids)[2]])
        return TokenHypotheses(token_ids, *(tf.reshape(values, shape) for values in numbers))

    def start(self, sentences: Sentences) -> Any:
        """Returns the state of a search for the best translations before its first step."""
        with self._weights.in_use():
            return self._searcher.start(sentences.ids)

    def advance(self, sentences: Sentences, state: Any, steps: tf.Tensor) -> tuple[Any, TokenHypotheses, tf.Tensor]:
        """Advances a search by at most `steps` steps, int32 scalar.

        Returns:
            The state, the best hypotheses so far, and the sentences whose hypotheses are final, bool [sentences].
        """
        with self._weights.in_use():
            state, result, done = self._searcher.advance(sentences.ids, state, steps)
        return state, TokenHypotheses(*result), done

    def beginnings(self, lines: tf.Tensor) -> Sentences:
        """Encodes the input "prefix", string [lines], as target tokens; the limits of `sources` apply."""
        return self._sentences(self._truecase(self._repair_output(lines)), "prefix", self._target_tokenizer)

    def next_tokens(self, sources: Sentences, beginnings: Sentences, count: int) -> tf.Tensor:
        """Finds the most probable next tokens that begin a word.

        Args:
            sources: the sources.
            beginnings: the beginnings of their targets; the end symbol of each stands in the place of the next token.
            count: the number of tokens per sentence.

        Returns:
            int32 [sentences, count], most probable first; padding if fewer tokens begin a word.
        """
        begins = np.ones(self._target_vocab_size, bool)
        begins[[*range(UNK_ID + 1), *self._within_words]] = False

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            target = beginnings.select(rows)
            hidden = self._hidden(sources.select(rows).ids, target.ids)
            places = tf.stack([tf.range(tf.size(rows)), target.lengths - 1], axis=1)
            last = tf.nest.map_structure(lambda values: tf.gather_nd(values, places), hidden)
            logits = tf.cast(self._model.logits(last), tf.float32)
            values, tokens = tf.math.top_k(tf.where(begins, logits, tf.float32.min), count)
            return [tf.where(values > tf.float32.min, tokens, PAD_ID)]

        lengths = tf.maximum(sources.lengths, beginnings.lengths)
        with self._weights.in_use():
            results = [tf.TensorSpec([None, count], tf.int32)]
            (tokens,) = in_batches(lengths, self.config.tokens_per_batch, compute, results)
        return tokens

    def search_restricted(self, sentences: Sentences, **options: tf.Tensor) -> TokenHypotheses:
        """Finds the best hypothesis of each sentence under restrictions.

        Args:
            sentences: the sentences.
            **options: options of `Searcher`, one row per sentence: `prefix`, int32 [sentences, length], or
                `constraints`; see `search_constrained`.
        """

        def search(ids: tf.Tensor, rows: tf.Tensor) -> list[tf.Tensor]:
            row_options = {name: tf.gather(values, rows) for name, values in options.items()}
            return list(self._searcher(ids, only_best=True, **row_options))

        with self._weights.in_use():
            return self._search_batches(sentences, search, 1)

    def search_constrained(self, sentences: Sentences, constraints: tf.Tensor) -> TokenHypotheses:
        """Finds the best hypothesis of each sentence that contains a phrase of each of its constraints.

        `constraints` are int32 [sentences, constraints, phrases, length]; see `Goal`.
        """
        sizes = *tf.unstack(tf.shape(constraints)), longest(self.output_limits(sentences))
        with tf.control_dependencies([assert_size("constraints of all hypotheses", self.config.beam_size, *sizes)]):
            constraints = tf.identity(constraints)
        return self.search_restricted(sentences, constraints=constraints)

    def _hidden_of(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Any:
        """Returns the hidden states that predict each token of given targets."""
        return self._model.states({"source": source_ids, "target": target_ids}, training=False).hidden

    def _log_probs_of(self, sources: Sentences, targets: Sentences) -> tf.Tensor:
        """Returns the log-probability of each target, end symbol included: float32 [sentences]."""

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            target = targets.select(rows).ids
            log_probs = hidden_log_probs(self._model, self._hidden(sources.select(rows).ids, target), target)
            return [tf.cast(tf.reduce_sum(tf.cast(log_probs, tf.float64), axis=1), tf.float32)]

        lengths = tf.maximum(sources.lengths, targets.lengths)
        (totals,) = in_batches(lengths, self.config.tokens_per_batch, compute, [tf.TensorSpec([None], tf.float32)])
        return totals

    def _attention_of(self, sources: Sentences, targets: Sentences) -> tf.Tensor:
        """Returns the attention that aligns tokens: float32 [sentences, target_len, source_len].

        See `AttentionViews.alignment_attention`.
        """
        sizes = [tf.shape(targets.ids)[1], tf.shape(sources.ids)[1]]

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            inputs = {"source": sources.select(rows).ids, "target": targets.select(rows).ids}
            return [widened(attention_views(self._model).alignment_attention(inputs), sizes)]

        lengths = tf.maximum(sources.lengths, targets.lengths)
        results = [tf.TensorSpec([None, None, None], tf.float32)]
        (attention,) = in_batches(lengths, self.config.tokens_per_batch, compute, results)
        return attention

    @functools.cached_property
    def attention_sizes(self) -> AttentionSizes:
        """The number of layers and heads of each kind of attention, from the shapes in the model's graph."""
        return AttentionSizes.of(self._all_attention.get_concrete_function().structured_outputs)

    def _all_attention_of(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Attentions:
        inputs = {"source": source_ids, "target": target_ids}
        return attention_views(self._model).logits_and_attention(inputs)[1]

    def _chosen_attention_of(self, sources: Sentences, targets: Sentences, selection: Choice) -> tf.Tensor:
        """Returns the attention of the kind and the layer that each pair asks for.

        Returns:
            float32 [sentences, heads, length, length], where length is that of the longest source or target; weights of
            padding are 0.
        """
        (layers, heads), lengths = self.attention_sizes, tf.maximum(sources.lengths, targets.lengths)
        elements = sum(layers) * heads
        size = assert_size("attention of all layers", tf.size(lengths), elements, longest(lengths), longest(lengths))
        with tf.control_dependencies([size]):
            length = tf.identity(longest(lengths))

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            row_selection = Choice(*(tf.gather(values, rows) for values in selection))
            weights = select_attention(
                self._all_attention(sources.select(rows).ids, targets.select(rows).ids), row_selection
            )
            return [widened(weights, [length, length])]

        results = [tf.TensorSpec([None, heads, None, None], tf.float32)]
        (weights,) = in_batches(lengths, self.config.tokens_per_batch, compute, results)
        source_mask, target_mask = (tf.sequence_mask(side.lengths, length) for side in (sources, targets))
        queries, keys = queries_and_keys(selection.kinds, source_mask, target_mask, inputs=target_mask)
        return tf.where((queries[:, :, tf.newaxis] & keys[:, tf.newaxis, :])[:, tf.newaxis], weights, 0.0)

    def hypotheses(self, lines: tf.Tensor, parts: Parts, result: TokenHypotheses, values: tf.Tensor) -> Hypotheses:
        """Joins the hypotheses of parts into the translations of their lines.

        Args:
            lines: string [lines].
            parts: the parts of these lines.
            result: the hypotheses of the parts.
            values: float32 [parts, k], scores or log-probabilities of the hypotheses, which are summed over the parts
                of a line.
        """
        join = self._join[result.lengths.shape[1]]
        output = join(parts.rows, parts.before, parts.begins, tf.size(lines), result.token_ids, values, result.lengths)
        return output._replace(texts=self._finish(lines, *output)) if self._finish else output

    def _finished_of(self, lines: tf.Tensor, texts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Applies the task's post-processing to the model's outputs, string [lines, k]; unused slots stay empty."""
        sources = tf.repeat(self._repair(lines), tf.shape(texts)[1])
        finished = tf.reshape(self._task.finish_in_graph(sources, tf.reshape(texts, [-1])), tf.shape(texts))
        return tf.where(values > LOWEST, finished, "")

    def _joining(self, k: int) -> Any:
        def compute(
            rows: tf.Tensor,
            before: tf.Tensor,
            begins: tf.Tensor,
            num_lines: tf.Tensor,
            ids: tf.Tensor,
            values: tf.Tensor,
            lengths: tf.Tensor,
        ) -> Hypotheses:
            texts, exists = self._texts(ids), lengths > 0
            if self.truecaser:
                texts = tf.where(begins[:, tf.newaxis], capitalised(texts), texts)
            if self._task.context:
                exists &= select_answers(rows, num_lines, texts, self._task.no_answer)[:, tf.newaxis]
                return join_parts(rows, before, num_lines, texts, values, exists, "best")
            mode: Joining = "ranks" if self.config.sampling else "sums"
            return join_parts(rows, before, num_lines, texts, values, exists, mode)

        numbers = [tf.TensorSpec([None, k], dtype) for dtype in (tf.float32, tf.int32)]
        ids = tf.TensorSpec([None, k, None], tf.int32)
        parts = _LENGTHS, _TEXTS, tf.TensorSpec([None], tf.bool)
        return _stage(compute, *parts, tf.TensorSpec([], tf.int32), ids, *numbers)

    def _texts(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Decodes token ids, int32 [parts, k, length], to texts, string [parts, k]."""
        is_before_end = tf.cumsum(tf.cast(token_ids == EOS_ID, tf.int32), axis=-1) == 0
        k = token_ids.shape[1]
        parts, _, length = tf.unstack(tf.shape(token_ids))
        flat = tf.reshape(token_ids, [parts * k, length])  # -1 would be k where there are no parts
        is_text = tf.reshape(is_before_end & (token_ids != PAD_ID), tf.shape(flat))
        texts = self._target_tokenizer.detokenize(tf.ragged.boolean_mask(flat, is_text))
        return tf.reshape(repaired(texts), [-1, k])  # byte fallback can spell any character, even a line break

    def _fits(self, texts: tf.Tensor) -> tf.Tensor:
        return self._source_tokenizer.tokenize(texts).row_lengths() < self.max_source_length

    def _search_batches(
        self, sentences: Sentences, search: Callable[[tf.Tensor, tf.Tensor], Sequence[tf.Tensor]], k: int | tf.Tensor
    ) -> TokenHypotheses:
        """Runs a search in batches of sentences of similar length.

        Args:
            sentences: the sentences.
            search: maps a batch's token ids and the indices of its sentences to the fields of `TokenHypotheses`.
            k: hypotheses per sentence.
        """
        width = longest(self.output_limits(sentences))
        with tf.control_dependencies([assert_size("translations", tf.size(sentences.lengths), k, width)]):
            lengths = tf.identity(sentences.lengths)

        def compute(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
            token_ids, *numbers = search(sentences.select(rows).ids, rows)
            return widened(token_ids, [width]), *numbers

        size = k if isinstance(k, int) else None
        numbers = [tf.TensorSpec([None, size], dtype) for dtype in (tf.float32, tf.float32, tf.int32)]
        results = [tf.TensorSpec([None, size, None], tf.int32), *numbers]
        return TokenHypotheses(*in_batches(lengths, self.config.tokens_per_batch, compute, results))

    def _with_weights(self, compute: Callable) -> Callable:
        """Wraps a function so that the model reads the exported weights in it."""

        def with_weights(*inputs: Any) -> Any:
            with self._weights.in_use():
                return compute(*inputs)

        return with_weights


def _stage(compute: Callable, *inputs: Any) -> Any:
    """Makes a `tf.function` that is traced and stored once; `inputs` are tensor specs or nests of them."""
    return tf.function(compute, input_signature=inputs, autograph=False)


def _lookup(pieces: Sequence[str]) -> Any:
    """Makes a stage that maps token ids, int32 [tokens], to the vocabulary's entries, string [tokens]."""
    return _stage(lambda token_ids: tf.gather(tf.constant(pieces), token_ids), tf.TensorSpec([None], tf.int32))


def longest(lengths: tf.Tensor) -> tf.Tensor:
    """Returns the largest length, or 0 if there are none."""
    return tf.reduce_max(tf.pad(lengths, [[0, 1]]))


def _sampling(config: DecodeConfig) -> DecodeConfig:
    """Returns the settings for drawing one sample: `config` without the settings that only beam search uses."""
    off: dict[str, Any] = {"num_groups": 1, "diversity_strength": 0.0, "coverage_penalty": 0.0, "patience": 0.0}
    return dataclasses.replace(config, sampling=True, beam_size=1, **off)


def _with_ends(ids: tf.RaggedTensor) -> Sentences:
    """Appends end symbols to token ids [sentences, ragged] and pads them; rejects a result that is too large."""
    ends = tf.fill([ids.nrows(), 1], EOS_ID)
    ids = tf.concat([ids, tf.RaggedTensor.from_tensor(ends)], axis=1)
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    with tf.control_dependencies([assert_size("token ids", tf.size(lengths), longest(lengths))]):
        ids = ids.with_flat_values(tf.identity(ids.flat_values))
    return Sentences(ids.to_tensor(PAD_ID), lengths)
