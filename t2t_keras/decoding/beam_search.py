"""Beam search over a step function; knows nothing of models.

The step function is `step_fn(token_ids [N] int32, cache) -> (logits [N, vocab], cache)`
with N = batch * beam, the beams of a sentence side by side. A cache is a dict of

- "position": int32 scalar,
- "hypotheses": a nest of tensors [batch, beam, ...] that follow their hypothesis: only
  the search knows that it reorders them, and it does so at every step,
- "self_attention": a nest of tensors [batch, ...] that the step function writes and
  the search never reorders,
- "memory": a nest of tensors [batch, ...] computed once per source sentence, read only,
- "constants": whatever else the step function reads.

An axis that has length 0 at the start may grow.

Sentences that are done leave the computation, so that batch shrinks from step to
step: whatever else a step function knows of a sentence belongs into the memory too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.config import EOS_ID, PAD_ID
from t2t_keras.decoding import state as search_state
from t2t_keras.decoding.scoring import best_attainable_score, normalised_score
from t2t_keras.decoding.state import DEAD, Finished, Living, SearchState
from t2t_keras.decoding.top_k import top_k

Cache = dict[str, Any]
StepFunction = Callable[[tf.Tensor, Cache], tuple[tf.Tensor, Cache]]


class SearchResult(NamedTuple):
    """The best hypotheses of each sentence, best score first.

    Attributes:
        token_ids: [batch, beam, length] int32, the end symbol included, then zeros;
            length is the number of steps that the search made.
        scores: [batch, beam] float32, log-probability over length penalty; -inf in a
            slot for which the search found no hypothesis.
        log_probs: [batch, beam] float32, the total log-probability.
        lengths: [batch, beam] int32, tokens with the end symbol; 0 in an unused slot.
    """

    token_ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


class _Candidates(NamedTuple):
    """The best continuations of all living hypotheses, [batch, candidates] each, best first."""

    log_probs: tf.Tensor
    token_ids: tf.Tensor
    parents: tf.Tensor


class _Settings(NamedTuple):
    """What stays the same throughout a search; see `beam_search`."""

    max_lengths: tf.Tensor
    min_lengths: tf.Tensor
    length_penalty: float
    patience: float


def beam_search(
    step_fn: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    beam_size: int,
    length_penalty: float,
    min_lengths: tf.Tensor | int = 0,
    patience: float = 0.0,
) -> SearchResult:
    """Searches for the outputs with the best length-normalised log-probability (section 6.1).

    Each step extends every living hypothesis by every token and looks at the
    2 * beam_size best of these candidates: those that end compete, by score, for
    the beam_size places among the finished; the beam_size best of the others live on.
    With a beam of one only the best candidate counts, which is greedy search.

    A sentence is done, and its result fixed, when it has beam_size finished
    hypotheses and no living one can overtake the worst of them within the
    sentence's limit, or when the limit is reached. What is returned are the
    finished hypotheses; where there is none, the living ones, their scores
    normalised as the others are. No sentence's result depends on another's.

    Log-probabilities are the model's own, normalised over the whole vocabulary;
    only then are padding, and end symbols that come too early, barred from the
    output. Equal candidates are taken by lower slot, then lower token id; of
    finished hypotheses with equal scores the earlier one is first.

    Args:
        step_fn: the model, see above; the first token it gets is 0.
        cache: what it starts from, see above.
        max_lengths: [batch] int32, most tokens of an output, the end symbol
            counted; 0 leaves a sentence out (an empty result with score 0).
        beam_size: hypotheses kept a sentence; may exceed the vocabulary.
        length_penalty: alpha of `scoring.length_penalty`.
        min_lengths: int32 [batch] or scalar, tokens of an output before its end symbol.
            Where that is not below the largest length, no hypothesis finishes.
        patience: when positive, a sentence is also done once patience * beam_size
            hypotheses have finished, the worst of which may have been dropped.

    Returns:
        The finished hypotheses of each sentence, best first.

    Raises:
        ValueError: `beam_size` below 1, or a negative `length_penalty` or `patience`.

    Reference:
        Wu et al. 2016, section 7; the stop is exact, in contrast to a pruned search.
        Kasai et al. 2024, "A Call for Clarity in Beam Search: How It Works and When It Stops", for patience.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size must be positive, got {beam_size}")
    if length_penalty < 0:
        raise ValueError(f"length_penalty must not be negative, got {length_penalty}")
    if patience < 0:
        raise ValueError(f"patience must not be negative, got {patience}")
    max_lengths = tf.cast(tf.convert_to_tensor(max_lengths), tf.int32)
    min_lengths = tf.broadcast_to(tf.cast(min_lengths, tf.int32), tf.shape(max_lengths))
    settings = _Settings(max_lengths, min_lengths, length_penalty, patience)

    def next_logits(token_ids: tf.Tensor, step_cache: Cache) -> tuple[tf.Tensor, Cache]:
        return step_fn(token_ids, {**step_cache, "constants": cache.get("constants")})

    def step(*state: Any) -> SearchState:
        return _advance(next_logits, SearchState(*state), settings)

    start = search_state.start_state(cache, max_lengths, beam_size, start_id=PAD_ID)
    shapes = search_state.state_shapes(start)
    end = tf.while_loop(lambda length, done, *_: ~tf.reduce_all(done), step, start, shape_invariants=shapes)
    return _result(SearchState(*end), max_lengths, length_penalty)


def _advance(step_fn: StepFunction, state: SearchState, settings: _Settings) -> SearchState:
    """One step: extend, sort out what ends, let the rest live on, see who is done."""
    candidates, cache = _extend(step_fn, state, settings.min_lengths)
    length, alpha = state.length + 1, settings.length_penalty
    # A DEAD candidate stands for none, whatever its token.
    ends = (candidates.token_ids == EOS_ID) & (candidates.log_probs > DEAD)
    new_ends = ends & ~state.done[:, tf.newaxis]
    finished = _finish(state.finished, candidates, new_ends, length, alpha)
    num_finished = state.num_finished + tf.math.count_nonzero(new_ends, axis=1, dtype=tf.int32)
    living, parents = _live_on(candidates, ends)
    history = search_state.remember(state.history, state.length, living.token_ids, parents)
    # Once done, a sentence keeps its totals: it may still have to return its living hypotheses.
    log_probs = tf.where(state.done[:, tf.newaxis], state.living.log_probs, living.log_probs)
    bound = best_attainable_score(log_probs[:, 0], settings.max_lengths, alpha)
    done = state.done | (length >= settings.max_lengths) | (finished.scores[:, -1] >= bound)
    if settings.patience:
        done |= tf.cast(num_finished, tf.float32) >= settings.patience * log_probs.shape[1]
    stepped = SearchState(
        length=length,
        done=done,
        living=Living(living.token_ids, log_probs),
        finished=finished,
        num_finished=num_finished,
        history=history,
        open_sentences=state.open_sentences,
        position=cache["position"],
        hypotheses=cache["hypotheses"],
        self_attention=cache["self_attention"],
        memory=state.memory,
    )
    return search_state.move_caches(stepped, parents)


def _extend(step_fn: StepFunction, state: SearchState, min_lengths: tf.Tensor) -> tuple[_Candidates, Cache]:
    """The best continuations in the open sentences (DEAD in all others), and the step function's cache."""
    living = Living(*(tf.gather(values, state.open_sentences) for values in state.living))
    cache = {
        "position": state.position,
        "hypotheses": state.hypotheses,
        "self_attention": state.self_attention,
        "memory": state.memory,
    }
    logits, cache = step_fn(tf.reshape(living.token_ids, [-1]), cache)  # --> [N, vocab]
    may_end = state.length >= tf.gather(min_lengths, state.open_sentences)  # --> [open]
    found = _best_candidates(tf.cast(logits, tf.float32), living.log_probs, may_end)  # --> [open, candidates]
    defaults = _Candidates(DEAD, PAD_ID, 0)
    spread = (
        search_state.spread(values, state.open_sentences, state.done, default)
        for values, default in zip(found, defaults, strict=True)
    )
    return _Candidates(*spread), cache  # --> [batch, candidates]


def _best_candidates(logits: tf.Tensor, living_log_probs: tf.Tensor, may_end: tf.Tensor) -> _Candidates:
    """The best continuations, [open, 2 * beam] (one if the beam is one).

    Of 2 * beam candidates at most beam end (each hypothesis has one end symbol),
    so that beam others are left. A hypothesis cannot have more than 2 * beam of
    the best, so that each row is cut down to those, plus one for padding and
    one for the end symbol, before anything else is computed from it.
    """
    beam, vocab = living_log_probs.shape[1], logits.shape[-1]
    num_candidates = 2 * beam if beam > 1 else 1
    per_row = min(num_candidates + 2, vocab)
    best_logits, token_ids = top_k(logits, per_row)  # --> [N, per_row]
    # log softmax = logit - max - log(sum(exp(logits - max))), and the largest probability is 1 / that sum.
    largest = tf.gather(tf.nn.softmax(logits), token_ids[:, :1], batch_dims=1)
    log_probs = best_logits - best_logits[:, :1] + tf.math.log(largest)
    too_early = tf.repeat(~may_end, beam)[:, tf.newaxis] & (token_ids == EOS_ID)
    log_probs = tf.where((token_ids == PAD_ID) | too_early, DEAD, log_probs) + tf.reshape(living_log_probs, [-1, 1])
    best, places = tf.math.top_k(tf.reshape(log_probs, [-1, beam * per_row]), num_candidates)  # --> [open, candidates]
    token_ids = search_state.gather_slots(tf.reshape(token_ids, [-1, beam * per_row]), places)
    return _Candidates(best, token_ids, places // per_row)


def _finish(finished: Finished, candidates: _Candidates, ends: tf.Tensor, length: tf.Tensor, alpha: float) -> Finished:
    """The best of the finished hypotheses and of the candidates that end."""
    scores = tf.where(ends, normalised_score(candidates.log_probs, length, alpha), DEAD)
    lengths = tf.where(scores > DEAD, length, 0)
    new = Finished(scores, candidates.log_probs, lengths, candidates.parents)
    joined = tf.nest.map_structure(lambda old, new: tf.concat([old, new], axis=1), finished, new)
    scores, places = tf.math.top_k(joined.scores, finished.scores.shape[1])
    _, *others = joined
    return Finished(scores, *search_state.gather_slots(others, places))


def _live_on(candidates: _Candidates, ends: tf.Tensor) -> tuple[Living, tf.Tensor]:
    """The best candidates that do not end, and the slots that they come from."""
    beam = max(1, candidates.log_probs.shape[1] // 2)
    log_probs, places = tf.math.top_k(tf.where(ends, DEAD, candidates.log_probs), beam)
    token_ids, parents = search_state.gather_slots((candidates.token_ids, candidates.parents), places)
    return Living(token_ids, log_probs), parents


def _result(state: SearchState, max_lengths: tf.Tensor, alpha: float) -> SearchResult:
    """The finished hypotheses, or the living ones where nothing finished, as texts."""
    finished, living = state.finished, state.living
    ended = finished.scores[:, :1] > DEAD  # --> [batch, 1]
    living_lengths = tf.where(living.log_probs > DEAD, tf.maximum(max_lengths, 0)[:, tf.newaxis], 0)
    lengths = tf.where(ended, finished.lengths, living_lengths)
    log_probs = tf.where(ended, finished.log_probs, living.log_probs)
    scores = tf.where(ended, finished.scores, normalised_score(living.log_probs, living_lengths, alpha))

    # An end symbol is in no living hypothesis: it is put behind the text that its parent has.
    text_lengths = tf.where(ended, tf.maximum(lengths - 1, 0), lengths)
    slots = tf.where(ended, finished.parents, tf.range(living.log_probs.shape[1]))
    history = tf.nest.map_structure(lambda steps: steps[: state.length], state.history)
    token_ids = search_state.trace_back(history, slots, text_lengths)  # --> [batch, beam, length]
    at_end = tf.range(state.length) == (lengths - 1)[:, :, tf.newaxis]
    token_ids = tf.where(at_end & ended[:, :, tf.newaxis], EOS_ID, token_ids)
    return SearchResult(token_ids, scores, log_probs, lengths)
