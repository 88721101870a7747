"""Greedy search: beam search with a beam of one, without the operations that only wider beams need.

Two loops are nested. The inner loop makes steps on the open sentences, and the outer loop removes sentences that are
done. Removing sentences copies the whole state, so it is not part of a step.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.search.scoring import should_remove_done
from t2t_keras.search.state import DEAD, cache_invariants, row_invariant
from t2t_keras.search.top_k import largest, top_k
from t2t_keras.symbols import EOS_ID, PAD_ID


class GreedyResult(NamedTuple):
    """The output of each sentence.

    Attributes:
        token_ids: int32 [batch, length], end symbol included, padded with zeros; length is the number of steps made.
        log_probs: float32 [batch], total log-probability; -inf if no output is possible, NaN if not scored.
        lengths: int32 [batch], number of tokens, end symbol included.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


class _OpenState(NamedTuple):
    """The open sentences, on which the step function works.

    Attributes:
        length: int32 scalar, number of steps made.
        done: bool [open], whether the output is complete.
        token_ids: int32 [open], the newest tokens.
        log_probs: float32 [open], total log-probabilities.
        texts: int32 [open, length], the output tokens, with zeros after an end symbol.
        cache: the step function's cache without its `source`.
    """

    length: tf.Tensor
    done: tf.Tensor
    token_ids: tf.Tensor
    log_probs: tf.Tensor
    texts: tf.Tensor
    cache: Cache


class _FixedState(NamedTuple):
    """Data of the open sentences that steps do not change.

    Attributes:
        sentences: int32 [open], indices in the batch.
        max_lengths: int32 [open], maximum numbers of output tokens.
        min_lengths: int32 [open], numbers of tokens required before the end symbol.
        source: the `source` of the step function's cache.
    """

    sentences: tf.Tensor
    max_lengths: tf.Tensor
    min_lengths: tf.Tensor
    source: Any


class GreedyState(NamedTuple):
    """The state of a search between two steps. Sentences that are done may still be among the open ones.

    Attributes:
        open: the open sentences.
        fixed: data of the open sentences that steps do not change.
        results: the outputs of the removed sentences, as wide as the longest allowed output.
    """

    open: _OpenState
    fixed: _FixedState
    results: GreedyResult

    def done_sentences(self) -> tf.Tensor:
        """Returns which outputs are final: bool [batch]."""
        is_done = tf.fill(tf.shape(self.results.lengths), True)
        return tf.tensor_scatter_nd_update(is_done, self.fixed.sentences[:, tf.newaxis], self.open.done)

    def invariants(self) -> "GreedyState":
        """Shape invariants for `tf.while_loop`."""
        return GreedyState(_invariants(self.open), *tf.nest.map_structure(row_invariant, (self.fixed, self.results)))


def greedy_start(cache: Cache, max_lengths: tf.Tensor, min_lengths: tf.Tensor) -> GreedyState:
    """Returns the state before the first step of a greedy search.

    The search takes the most probable token at every step, like a beam search with a beam of one and no options.

    Args:
        cache: the cache of the first step, with one row per sentence.
        max_lengths: int32 [batch], maximum number of output tokens; 0 skips a sentence.
        min_lengths: int32 [batch], number of tokens required before the end symbol.
    """
    batch = tf.shape(max_lengths)[0]
    start = _OpenState(
        length=tf.constant(0),
        done=max_lengths <= 0,
        token_ids=tf.fill([batch], PAD_ID),
        log_probs=tf.zeros([batch]),
        texts=tf.zeros([batch, 0], tf.int32),
        cache=cache._replace(source=()),
    )
    fixed = _FixedState(tf.range(batch), max_lengths, min_lengths, cache.source)
    room = tf.maximum(tf.reduce_max(max_lengths), 1)  # TensorFlow cannot scatter into an empty tensor
    results = GreedyResult(tf.zeros([batch, room], tf.int32), tf.zeros([batch]), tf.zeros([batch], tf.int32))
    return GreedyState(start, fixed, results)


def greedy_steps(step_fn: StepFunction, state: GreedyState, scored: bool, steps: tf.Tensor | None) -> GreedyState:
    """Runs a search to its end, or for at most `steps` steps, an int32 scalar.

    Without `scored`, log-probabilities are not computed, and the steps are faster.
    """
    limit = None if steps is None else state.open.length + steps

    def is_running(state: _OpenState, *_: Any) -> tf.Tensor:
        any_open = tf.size(state.done) > 0
        return any_open if limit is None else any_open & (state.length < limit)

    def run_round(state: _OpenState, fixed: _FixedState, results: GreedyResult) -> GreedyState:
        state = _steps(step_fn, state, fixed, scored, limit)
        return GreedyState(*_remove_done(state, fixed, results))

    return GreedyState(*tf.while_loop(is_running, run_round, state, state.invariants()))


def greedy_result(state: GreedyState, scored: bool, so_far: bool) -> GreedyResult:
    """Returns the outputs of a search that has made all of its steps, or of an unfinished one with `so_far`.

    Without `scored`, finite log-probabilities are replaced by NaN.
    """
    results = state.results
    if so_far:
        _, _, results = _remove_done(state.open._replace(done=tf.ones_like(state.open.done)), state.fixed, results)
    log_probs = results.log_probs
    if not scored:
        log_probs = tf.where(tf.math.is_inf(log_probs), log_probs, float("nan"))
    return results._replace(token_ids=results.token_ids[:, : state.open.length], log_probs=log_probs)


def _steps(
    step_fn: StepFunction, state: _OpenState, fixed: _FixedState, scored: bool, limit: tf.Tensor | None
) -> _OpenState:
    """Makes steps until enough sentences are done to be removed, or until outputs reach the length `limit`."""

    def busy(length: tf.Tensor, done: tf.Tensor, *_: Any) -> tf.Tensor:
        is_busy = ~should_remove_done(tf.math.count_nonzero(done, dtype=tf.int32), tf.size(done))
        return is_busy if limit is None else is_busy & (length < limit)

    def step(*values: Any) -> _OpenState:
        state = _OpenState(*values)
        logits, cache = step_fn(state.token_ids, state.cache._replace(source=fixed.source))  # --> [open, vocab]
        token_ids, log_probs = _choose(tf.cast(logits, tf.float32), state.length >= fixed.min_lengths, scored)
        token_ids = tf.where(state.done | ~tf.math.is_finite(log_probs), PAD_ID, token_ids)
        length = state.length + 1
        return _OpenState(
            length=length,
            done=state.done | (token_ids <= EOS_ID) | (length >= fixed.max_lengths),
            token_ids=token_ids,
            log_probs=tf.where(state.done, state.log_probs, state.log_probs + log_probs),
            texts=tf.concat([state.texts, token_ids[:, tf.newaxis]], axis=1),
            cache=cache._replace(source=()),
        )

    return tf.while_loop(busy, step, state, _invariants(state))


def _choose(logits: tf.Tensor, may_end: tf.Tensor, scored: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the most probable allowed token of each row and its log-probability, [open] each.

    The logits are float32 [open, vocab], and `may_end` is bool [open]. Without `scored`, the second result is not the
    log-probability, but it is infinite wherever the log-probability is.
    """
    best, token_ids = largest(logits)

    def is_barred(token_ids: tf.Tensor, may_end: tf.Tensor) -> tf.Tensor:
        return (token_ids == PAD_ID) | ((token_ids == EOS_ID) & ~may_end)

    def best_allowed() -> tuple[tf.Tensor, tf.Tensor]:
        values, ids = top_k(logits, min(3, logits.shape[-1]))  # at most two are barred
        values = tf.where(is_barred(ids, may_end[:, tf.newaxis]), DEAD, values)
        places = tf.argmax(values, axis=1, output_type=tf.int32)
        return tf.reduce_max(values, axis=1), tf.gather(ids, places, batch_dims=1)

    any_barred = tf.reduce_any(is_barred(token_ids, may_end))
    chosen, token_ids = tf.cond(any_barred, best_allowed, lambda: (best, token_ids))
    if not scored:
        return token_ids, chosen - best
    # log(softmax(x)) = x - max(x) + log(max(softmax(x)))
    return token_ids, chosen - best + tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=1))


def _remove_done(
    state: _OpenState, fixed: _FixedState, results: GreedyResult
) -> tuple[_OpenState, _FixedState, GreedyResult]:
    """Moves the outputs of sentences that are done into the results, and keeps the other sentences."""
    done_rows, open_rows = tf.where(state.done)[:, 0], tf.where(~state.done)[:, 0]  # --> [done], [open]
    rows = tf.gather(fixed.sentences, done_rows)[:, tf.newaxis]
    texts, log_probs = tf.gather(state.texts, done_rows), tf.gather(state.log_probs, done_rows)
    lengths = tf.math.count_nonzero(texts, axis=1, dtype=tf.int32)
    is_finite = tf.math.is_finite(log_probs)
    log_probs, lengths = tf.where(is_finite, log_probs, DEAD), tf.where(is_finite, lengths, 0)
    texts = tf.where(tf.range(state.length) < lengths[:, tf.newaxis], texts, PAD_ID)
    texts = tf.pad(texts, [[0, 0], [0, tf.shape(results.token_ids)[1] - state.length]])
    results = GreedyResult(
        *(
            tf.tensor_scatter_nd_update(result, rows, values)
            for result, values in zip(results, (texts, log_probs, lengths), strict=True)
        )
    )

    def keep(values: Any) -> Any:
        return tf.nest.map_structure(lambda value: tf.gather(value, open_rows) if value.shape.rank else value, values)

    return keep(state), keep(fixed), results


def _invariants(state: _OpenState) -> _OpenState:
    """Shape invariants for `tf.while_loop`."""
    invariants = tf.nest.map_structure(row_invariant, state)
    return invariants._replace(texts=tf.TensorShape([None, None]), cache=cache_invariants(state.cache))
