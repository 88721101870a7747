"""Sampling from a step function, reproducible for each sentence.

The samples of a sentence take the place of the beam. Each sample only extends itself, so samples are never reordered.
"""

from typing import Any

import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.search import state as search_state
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.goal import Goal
from t2t_keras.search.random_numbers import uniform
from t2t_keras.search.restrictions.tracking import initial_tracked, restriction_bias, tracked_step
from t2t_keras.search.state import DEAD, Active, SearchState
from t2t_keras.symbols import EOS_ID, PAD_ID

# The tokens are arranged in a cube. A token is drawn one coordinate at a time, each with a separate random number.
_AXES = 3

# Keeps a draw below the total despite rounding.
_ALMOST_ONE = 1.0 - 2.0**-20


def sample(step_fn: StepFunction, cache: Cache, goal: Goal, keys: tf.Tensor) -> SearchResult:
    """Draws outputs token by token.

    Rules and prefixes bar tokens first. The logits are then divided by the temperature and restricted by top_k and
    top_p, in this order. A draw depends only on the sentence's key, the step and the sample's number.

    Args:
        step_fn: the model's step function.
        cache: the cache of the first step, with samples in place of the beam.
        goal: settings, limits and restrictions; `goal.settings.beam_size` is the number of samples per sentence.
        keys: int32 [batch, 2], for example from `random_numbers.sentence_keys`.

    Returns:
        The samples in order of their numbers, with the model's log-probabilities at temperature 1 over the whole
        vocabulary. A sample without an allowed token at some step is an empty slot.

    Raises:
        ValueError: `goal.settings.sampling` is off.

    Reference: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", for top_p.
    """
    settings, goal = goal.settings, goal.with_tensors()
    if not settings.sampling:
        raise ValueError(f"goal.settings.sampling must be true for samples, got {settings.sampling}")
    max_lengths, min_lengths, num_samples = goal.max_lengths, goal.min_lengths, settings.beam_size
    keys = tf.reshape(tf.cast(keys, tf.int32), [-1, 2])
    draws = uniform(keys, tf.maximum(tf.reduce_max(max_lengths), 0), num_samples * _AXES)
    draws = tf.reshape(draws, [tf.shape(draws)[0], -1, num_samples, _AXES])  # --> [steps, batch, samples, 3]

    def step(*values: Any) -> SearchState:
        state = SearchState(*values)
        open_sentences = state.open_sentences
        active = Active(*(tf.gather(part, open_sentences) for part in state.active))
        logits, step_cache, tracked = tracked_step(step_fn, state, active.token_ids)
        logits = tf.reshape(logits, [-1, num_samples, logits.shape[-1]])  # --> [open, samples, vocab]
        may_end = (state.length >= tf.gather(min_lengths, open_sentences))[:, tf.newaxis]
        bias = restriction_bias(tracked, may_end, state.length, logits.shape[-1], goal)
        token_ids = draw(logits + bias, tf.gather(draws[state.length], open_sentences), settings)
        token_log_probs = tf.gather(logits, token_ids, batch_dims=2) - tf.reduce_logsumexp(logits, axis=-1)
        token_log_probs = tf.where(token_ids == PAD_ID, DEAD, token_log_probs)  # --> [open, samples]
        return _advance(state._replace(cache=step_cache, tracked=tracked), token_ids, token_log_probs, max_lengths)

    tracked = initial_tracked(goal, tf.shape(max_lengths)[0])
    start = search_state.start_state(cache, tracked, max_lengths, num_samples)
    start = start._replace(active=start.active._replace(log_probs=tf.zeros_like(start.active.log_probs)))
    state = search_state.make_steps(lambda length, done, *_: ~tf.reduce_all(done), step, start)
    log_probs, end_lengths = state.active.log_probs, state.finished.lengths
    lengths = tf.where(end_lengths > 0, end_lengths, tf.maximum(max_lengths, 0)[:, tf.newaxis])
    lengths = tf.where(log_probs > DEAD, lengths, 0)
    token_ids = search_state.steps_last(state.history.token_ids[: state.length])  # --> [batch, samples, length]
    token_ids = tf.where(tf.range(state.length) < lengths[:, :, tf.newaxis], token_ids, PAD_ID)
    results = SearchResult(token_ids, goal.score(log_probs, lengths), log_probs, lengths)
    return SearchResult(*(values[:, : goal.num_returned] for values in results))


def draw(logits: tf.Tensor, uniforms: tf.Tensor, settings: DecodeConfig) -> tf.Tensor:
    """Draws a token from each row of logits, float32 [..., vocab]: int32 [...], 0 if all are barred (-inf) or NaN.

    Inverts the cumulative distribution with uniforms, float32 [..., 3] in [0, 1). Tokens are ordered by id, or by
    probability with top_k or top_p. Rounding depends on the batch and shifts the boundaries between tokens, so a number
    near a boundary may draw a different token. A cube of tokens has far fewer boundaries than one row of all tokens.
    """
    token_ids = None
    if settings.top_k or settings.top_p < 1:
        count = min(settings.top_k or logits.shape[-1], logits.shape[-1])
        logits, token_ids = tf.math.top_k(logits, count)  # --> [..., count]
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    masses = tf.exp((logits - largest) / settings.temperature)
    if settings.top_p < 1:
        cumulative = tf.cumsum(masses, axis=-1)
        masses = tf.where(cumulative - masses < settings.top_p * cumulative[..., -1:], masses, 0.0)
    is_drawn, places = _place_in_cube(masses, uniforms)
    chosen = places if token_ids is None else tf.gather(token_ids, places, batch_dims=token_ids.shape.rank - 1)
    return tf.where(is_drawn, chosen, PAD_ID)


def _place_in_cube(masses: tf.Tensor, uniforms: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws an index in proportion to masses [..., count].

    Returns whether any mass is positive, bool [...], and the index, int32 [...].
    """
    count, leading = masses.shape[-1], masses.shape.rank - 1
    side = round(count ** (1 / _AXES))
    side += side**_AXES < count
    masses = tf.pad(masses, [[0, 0]] * leading + [[0, side**_AXES - count]])
    cube = tf.reshape(masses, tf.concat([tf.shape(masses)[:-1], [side] * _AXES], axis=0))  # --> [..., side, side, side]
    is_drawn, places = True, 0
    for axis in range(_AXES):
        inner = list(range(leading + 1, cube.shape.rank))
        hits, coordinate = _coordinate(tf.reduce_sum(cube, axis=inner), uniforms[..., axis])
        is_drawn, places = is_drawn & hits, places * side + coordinate
        cube = tf.gather(cube, coordinate, batch_dims=leading)  # --> one axis less
    return is_drawn, places


def _coordinate(masses: tf.Tensor, uniforms: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws an index in proportion to masses [..., side], with uniforms [...].

    Returns whether any mass is positive, bool [...], and the index, int32 [...].
    """
    cumulative = tf.cumsum(masses, axis=-1)
    threshold = uniforms[..., tf.newaxis] * cumulative[..., -1:] * _ALMOST_ONE
    hits = (cumulative > threshold) & (masses > 0)
    return tf.reduce_any(hits, axis=-1), tf.argmax(hits, axis=-1, output_type=tf.int32)


def _advance(state: SearchState, token_ids: tf.Tensor, log_probs: tf.Tensor, max_lengths: tf.Tensor) -> SearchState:
    """Returns the state after the open sentences have drawn tokens, [open, samples].

    The caches of `state` must already include this step.
    """
    length, end_lengths = state.length + 1, state.finished.lengths
    token_ids = search_state.scatter_rows(token_ids, state.open_sentences, state.done, PAD_ID)  # --> [batch, samples]
    log_probs = search_state.scatter_rows(log_probs, state.open_sentences, state.done, 0.0)
    is_active = ~state.done[:, tf.newaxis] & (end_lengths == 0) & (state.active.log_probs > DEAD)
    totals = tf.where(is_active, state.active.log_probs + log_probs, state.active.log_probs)
    end_lengths = tf.where(is_active & (token_ids == EOS_ID), length, end_lengths)
    is_over = tf.reduce_all((end_lengths > 0) | ~(totals > DEAD), axis=1)
    place = tf.reshape(state.length, [1, 1])
    history = tf.tensor_scatter_nd_update(state.history.token_ids, place, token_ids[tf.newaxis])
    return state._replace(
        length=length,
        done=state.done | is_over | (length >= max_lengths),
        active=Active(token_ids, totals),
        finished=state.finished._replace(lengths=end_lengths),
        history=state.history._replace(token_ids=history),
    )
