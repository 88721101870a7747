"""Greedy search: what beam search is with a beam of one, without all that only wider beams need.

Two loops, one in the other: the inner one makes steps and touches nothing but the
sentences that are open, the outer one lets those leave that are done, since leaving
copies all that is kept. Nothing of the outer loop costs a step anything.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.search.leaving import is_time_to_leave
from t2t_keras.search.state import DEAD, any_rows, cache_shapes
from t2t_keras.search.top_k import largest, top_k
from t2t_keras.symbols import EOS_ID, PAD_ID


class GreedyResult(NamedTuple):
    """The output of each sentence.

    Attributes:
        token_ids: [batch, length] int32, the end symbol included, then zeros; length is
            the number of steps that the search made.
        log_probs: [batch] float32, the total log-probability; -inf where no output is possible, NaN if none were
            wanted.
        lengths: [batch] int32, tokens with the end symbol.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


class _Open(NamedTuple):
    """The sentences that the step function works on.

    Attributes:
        length: int32 scalar, steps made.
        done: [open] bool, whose output is complete.
        token_ids: [open] int32, the newest token.
        log_probs: [open] float32, the total so far.
        texts: [open, length] int32, all tokens, zeros after an end symbol.
        cache: the step function's, without the source.
    """

    length: tf.Tensor
    done: tf.Tensor
    token_ids: tf.Tensor
    log_probs: tf.Tensor
    texts: tf.Tensor
    cache: Cache


class _Fixed(NamedTuple):
    """What stays as it is from step to step, and only ever leaves.

    Attributes:
        sentences: [open] int32, which of the batch are open.
        max_lengths: [open] int32.
        min_lengths: [open] int32.
        source: that of the step function's cache.
    """

    sentences: tf.Tensor
    max_lengths: tf.Tensor
    min_lengths: tf.Tensor
    source: Any


def greedy_search(
    step_fn: StepFunction, cache: Cache, max_lengths: tf.Tensor, min_lengths: tf.Tensor, scored: bool = True
) -> GreedyResult:
    """Takes the most probable token at every step.

    Args:
        step_fn: the model, see `beam_search`, with a beam of one.
        cache: what it starts from.
        max_lengths: [batch] int32, most tokens of an output; 0 leaves a sentence out.
        min_lengths: [batch] int32, tokens of an output before its end symbol.
        scored: whether log-probabilities are wanted; else all that are finite come out as NaN, and a step is shorter.

    Returns:
        What `beam_search` finds with a beam of one and no options.
    """
    batch, most = tf.shape(max_lengths)[0], tf.maximum(tf.reduce_max(max_lengths), 0)
    start = _Open(
        length=tf.constant(0),
        done=max_lengths <= 0,
        token_ids=tf.fill([batch], PAD_ID),
        log_probs=tf.zeros([batch]),
        texts=tf.zeros([batch, 0], tf.int32),
        cache=cache._replace(source=()),
    )
    fixed = _Fixed(tf.range(batch), max_lengths, min_lengths, cache.source)
    results = GreedyResult(tf.zeros([batch, most], tf.int32), tf.zeros([batch]), tf.zeros([batch], tf.int32))

    def rounds(state: _Open, fixed: _Fixed, results: GreedyResult) -> tuple[_Open, _Fixed, GreedyResult]:
        state = _steps(step_fn, state, fixed, scored)
        return _leave(state, fixed, results)

    loop = (start, fixed, results)
    shapes = (_shapes(start), *tf.nest.map_structure(any_rows, (fixed, results)))
    state, _, results = tf.while_loop(lambda state, *_: tf.size(state.done) > 0, rounds, loop, shapes)
    log_probs = results.log_probs
    if not scored:
        log_probs = tf.where(tf.math.is_inf(log_probs), log_probs, float("nan"))
    return results._replace(token_ids=results.token_ids[:, : state.length], log_probs=log_probs)


def _steps(step_fn: StepFunction, state: _Open, fixed: _Fixed, scored: bool) -> _Open:
    """Steps until it is time for sentences to leave."""

    def busy(length: tf.Tensor, done: tf.Tensor, *_: Any) -> tf.Tensor:
        return ~is_time_to_leave(tf.math.count_nonzero(done, dtype=tf.int32), tf.size(done))

    def step(*values: Any) -> _Open:
        state = _Open(*values)
        logits, cache = step_fn(state.token_ids, state.cache._replace(source=fixed.source))  # --> [open, vocab]
        token_ids, log_probs = _choose(tf.cast(logits, tf.float32), state.length >= fixed.min_lengths, scored)
        token_ids = tf.where(state.done | ~tf.math.is_finite(log_probs), PAD_ID, token_ids)
        length = state.length + 1
        return _Open(
            length=length,
            done=state.done | (token_ids <= EOS_ID) | (length >= fixed.max_lengths),
            token_ids=token_ids,
            log_probs=tf.where(state.done, state.log_probs, state.log_probs + log_probs),
            texts=tf.concat([state.texts, token_ids[:, tf.newaxis]], axis=1),
            cache=cache._replace(source=()),
        )

    return tf.while_loop(busy, step, state, _shapes(state))


def _choose(logits: tf.Tensor, may_end: tf.Tensor, scored: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable token that may come, and its log-probability, [open] each.

    Args:
        logits: float32 [open, vocab].
        may_end: bool [open].
        scored: whether log-probabilities are wanted; else any number that is not infinite stands for one that is not.
    """
    best, token_ids = largest(logits)

    def is_barred(token_ids: tf.Tensor, may_end: tf.Tensor) -> tf.Tensor:
        return (token_ids == PAD_ID) | ((token_ids == EOS_ID) & ~may_end)

    def best_allowed() -> tuple[tf.Tensor, tf.Tensor]:
        values, ids = top_k(logits, min(3, logits.shape[-1]))  # two at most are barred
        values = tf.where(is_barred(ids, may_end[:, tf.newaxis]), DEAD, values)
        places = tf.argmax(values, axis=1, output_type=tf.int32)
        return tf.reduce_max(values, axis=1), tf.gather(ids, places, batch_dims=1)

    barred = tf.reduce_any(is_barred(token_ids, may_end))
    chosen, token_ids = tf.cond(barred, best_allowed, lambda: (best, token_ids))
    if not scored:
        return token_ids, chosen - best
    # log softmax = logit - largest + log(the largest probability).
    return token_ids, chosen - best + tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=1))


def _leave(state: _Open, fixed: _Fixed, results: GreedyResult) -> tuple[_Open, _Fixed, GreedyResult]:
    """Writes down the outputs that are complete, and keeps the other sentences."""
    gone, kept = tf.where(state.done)[:, 0], tf.where(~state.done)[:, 0]  # --> [gone], [open]
    rows = tf.gather(fixed.sentences, gone)[:, tf.newaxis]
    texts, log_probs = tf.gather(state.texts, gone), tf.gather(state.log_probs, gone)
    lengths = tf.math.count_nonzero(texts, axis=1, dtype=tf.int32)
    possible = tf.math.is_finite(log_probs)
    log_probs, lengths = tf.where(possible, log_probs, DEAD), tf.where(possible, lengths, 0)
    texts = tf.where(tf.range(state.length) < lengths[:, tf.newaxis], texts, PAD_ID)
    texts = tf.pad(texts, [[0, 0], [0, tf.shape(results.token_ids)[1] - state.length]])
    results = GreedyResult(
        *(
            tf.tensor_scatter_nd_update(before, rows, values)
            for before, values in zip(results, (texts, log_probs, lengths), strict=True)
        )
    )

    def keep(values: Any) -> Any:
        return tf.nest.map_structure(lambda value: tf.gather(value, kept) if value.shape.rank else value, values)

    return keep(state), keep(fixed), results


def _shapes(state: _Open) -> _Open:
    """For `tf.while_loop`."""
    shapes = tf.nest.map_structure(any_rows, state)
    return shapes._replace(texts=tf.TensorShape([None, None]), cache=cache_shapes(state.cache))
