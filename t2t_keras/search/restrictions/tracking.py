"""Tensors that options need besides the model's cache: the texts, and each sentence's restrictions."""

from typing import Any

import tensorflow as tf

from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.search.goal import Goal
from t2t_keras.search.restrictions import rules as restrictions
from t2t_keras.search.state import SearchState, Tracked

RANKS = {"prefixes": 2, "constraints": 4, "excluded": 3}


def initial_tracked(goal: Goal, batch: tf.Tensor) -> Tracked:
    """Returns the tracked tensors before the first step."""
    texts = (tf.zeros([batch, goal.settings.beam_size, 0], tf.int32),) if goal.needs_texts else ()
    values = {name: getattr(goal, name) for name in RANKS}
    return Tracked(texts, **{name: (_token_ids(value, name),) for name, value in values.items() if value is not None})


def tracked_step(step_fn: StepFunction, state: SearchState, token_ids: tf.Tensor) -> tuple[tf.Tensor, Cache, Tracked]:
    """Calls the step function with the newest tokens, int32 [open, beam], and appends them to the texts.

    Returns the logits, float32 [N, vocab], the model's new cache and the new tracked tensors.
    """
    logits, cache = step_fn(tf.reshape(token_ids, [-1]), state.cache)
    # Texts include the start symbol, so that the first step needs no special case.
    texts = tuple(tf.concat([texts, token_ids[:, :, tf.newaxis]], axis=2) for texts in state.tracked.texts)
    return tf.cast(logits, tf.float32), cache, state.tracked._replace(texts=texts)


def texts_of(tracked: Tracked) -> tf.Tensor:
    """Returns the texts of the active hypotheses without the start symbol, int32 [open, beam, length]."""
    return tracked.texts[0][:, :, 1:]


def restriction_bias(
    tracked: Tracked, may_end: tf.Tensor, position: tf.Tensor, vocab_size: int, goal: Goal
) -> tf.Tensor:
    """Returns the bias of the next token, float32 [open, beam or 1, vocab]: -inf for barred tokens, else 0.

    `may_end` is bool [open, beam or 1]. `position`, an int32 scalar, is the number of tokens so far.
    """
    bias = restrictions.ending_bias(may_end, vocab_size, must_end=goal.ends_at_minimum)
    for rule in goal.rules:
        bias += rule(texts_of(tracked), vocab_size)
    for excluded in tracked.excluded:
        bias += restrictions.excluded_bias(texts_of(tracked), excluded, vocab_size)
    for prefixes in tracked.prefixes:
        bias = restrictions.forced_bias(bias, prefixes, position)
    return bias


def _token_ids(value: Any, name: str) -> tf.Tensor:
    """Converts the token ids of sentences to int32 and checks their rank."""
    value = tf.cast(tf.convert_to_tensor(value), tf.int32)
    if value.shape.rank != RANKS[name]:
        raise ValueError(f"{name} must have {RANKS[name]} axes, got shape {value.shape}")
    return value
