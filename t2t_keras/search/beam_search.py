"""Beam search over a step function and its cache (`t2t_keras.models.contract`).

A step function works on N = open * beam rows, in which the hypotheses of a sentence are adjacent; open is the number of
sentences still in the batch. Sentences that are done are removed, so the batch shrinks during a search. A step function
must therefore store everything that it needs about a sentence in the cache.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.search import diverse
from t2t_keras.search import state as search_state
from t2t_keras.search.candidates import Candidates, best_candidates, biased_candidates, first_continuing
from t2t_keras.search.goal import Goal
from t2t_keras.search.greedy import GreedyState, greedy_result, greedy_start, greedy_steps
from t2t_keras.search.restrictions import constraints as lexical
from t2t_keras.search.restrictions.tracking import initial_tracked, restriction_bias, texts_of, tracked_step
from t2t_keras.search.scoring import coverage_score
from t2t_keras.search.state import DEAD, Active, Finished, SearchState, Tracked
from t2t_keras.symbols import EOS_ID, PAD_ID


class SearchResult(NamedTuple):
    """The best hypotheses of each sentence, best score first. Empty slots have score -inf and length 0.

    Attributes:
        token_ids: int32 [batch, num_best, length], end symbol included, padded with zeros; length is the number of
            steps made.
        scores: float32 [batch, num_best], log-probability over length penalty, plus the coverage score if enabled.
        log_probs: float32 [batch, num_best], total log-probability; NaN, like `scores`, after a greedy search without
            `Goal.scored`.
        lengths: int32 [batch, num_best], number of tokens, end symbol included.
    """

    token_ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def beam_search(step_fn: StepFunction, cache: Cache, goal: Goal) -> SearchResult:
    """Searches for the hypotheses with the best length-normalised log-probability (section 6.1).

    Each step extends every active hypothesis by every token and considers the 2 * beam_size best candidates. Candidates
    that end compete by score for the beam_size slots of finished hypotheses. The beam_size best of the others stay
    active. With `ends_within_beam`, a candidate that ends without being among the beam_size best is dropped. With a
    beam of one, only the best candidate is considered, which is greedy search. The beam may be larger than the
    vocabulary.

    A sentence is done when it has num_best finished hypotheses and no active one can overtake the worst of these within
    the sentence's length limit, or when the limit is reached. The result is the finished hypotheses or, if there are
    none, the active ones that meet all constraints, scored alike. The result of a sentence does not depend on other
    sentences.

    Log-probabilities are the model's, normalised over the whole vocabulary; padding and premature end symbols are
    barred only afterwards. Ties go to the lower slot, then to the lower token id; among finished hypotheses, to the
    earlier one.

    Args:
        step_fn: the model's step function.
        cache: the cache of the first step.
        goal: settings, limits and restrictions.

    Raises:
        ValueError: a coverage penalty is set, but the cache has no coverage.

    Reference: Wu et al. 2016, section 7, but with an exact stopping criterion instead of pruning. Kasai et al. 2024,
    "A Call for Clarity in Beam Search: How It Works and When It Stops", for patience. Vijayakumar et al. 2018, "Diverse
    Beam Search", for groups.
    """
    return result(make_steps(step_fn, start(cache, goal), goal), goal)


def start(cache: Cache, goal: Goal) -> SearchState | GreedyState:
    """Returns the state of a search before its first step; see `beam_search` for the arguments."""
    goal = goal.with_tensors()
    return greedy_start(cache, goal.max_lengths, goal.min_lengths) if _is_greedy(goal) else _start(cache, goal)


def make_steps(
    step_fn: StepFunction, state: SearchState | GreedyState, goal: Goal, steps: tf.Tensor | None = None
) -> SearchState | GreedyState:
    """Runs a search to its end, or for at most `steps` steps, an int32 scalar."""
    goal = goal.with_tensors()
    if isinstance(state, GreedyState):
        return greedy_steps(step_fn, state, goal.scored, steps)
    limit = None if steps is None else state.length + steps

    def is_running(length: tf.Tensor, done: tf.Tensor, *_: Any) -> tf.Tensor:
        busy = ~tf.reduce_all(done)
        return busy if limit is None else busy & (length < limit)

    def step(*values: Any) -> SearchState:
        return _advance(step_fn, SearchState(*values), goal)

    return search_state.make_steps(is_running, step, state, goal.settings.num_groups)


def result(state: SearchState | GreedyState, goal: Goal, so_far: bool = False) -> SearchResult:
    """Returns the best hypotheses of a search that has made all of its steps.

    With `so_far`, the search may have made any number of steps. The result of a sentence that is not done is then
    either its finished hypotheses or its active ones, whichever include the better score.
    """
    goal = goal.with_tensors()
    if isinstance(state, GreedyState):
        texts = greedy_result(state, goal.scored, so_far)
        scores = goal.score(texts.log_probs, texts.lengths)
        return SearchResult(*(values[:, tf.newaxis] for values in (texts.token_ids, scores, *texts[1:])))
    token_ids, *rest = _result(state, goal, so_far)
    num_best = goal.num_returned
    return SearchResult(token_ids[:, :num_best], *(values[:, :num_best] for values in rest))


def done_sentences(state: SearchState | GreedyState, goal: Goal) -> tf.Tensor:
    """Returns which results are final: bool [batch]."""
    if isinstance(state, GreedyState):
        return state.done_sentences()
    return search_state.sentences_done(state.done, goal.settings.num_groups)


def state_invariants(state: SearchState | GreedyState) -> Any:
    """Returns the shape invariants of a state during a search: shapes with None for axes that change."""
    return state.invariants() if isinstance(state, GreedyState) else search_state.state_invariants(state)


def _is_greedy(goal: Goal) -> bool:
    """Whether a greedy search suffices: the beam is one, and no option needs the general search."""
    return goal.settings.beam_size == 1 and not goal.restricts and not goal.settings.coverage_penalty


def _start(cache: Cache, goal: Goal) -> SearchState:
    """Returns the state before the first step. In a diverse search, each group takes the place of a sentence."""
    settings, batch = goal.settings, tf.shape(goal.max_lengths)[0]
    limits = _repeat_for_groups(goal.max_lengths, settings.num_groups)
    tracked = initial_tracked(goal, batch)
    beam_size = settings.beam_size // settings.num_groups
    start = search_state.start_state(cache, tracked, limits, beam_size)
    if settings.num_groups > 1:
        start = start._replace(open_sentences=tf.range(batch))
    if settings.coverage_penalty:
        if cache.coverage.shape[2] == 0:
            raise ValueError(f"coverage_penalty={settings.coverage_penalty} needs a cache with coverage")
        start = start._replace(coverage_scores=(tf.zeros_like(start.active.log_probs),))
    return start


def _advance(step_fn: StepFunction, state: SearchState, goal: Goal) -> SearchState:
    """Makes one step: extends the hypotheses, separates those that end, and marks the sentences that are done."""
    num_groups, length = goal.settings.num_groups, state.length + 1
    candidates, coverage, cache, tracked = _extend(step_fn, state, goal)
    # A DEAD candidate is an empty slot, even if its token is the end symbol.
    ends = (candidates.token_ids == EOS_ID) & (candidates.log_probs > DEAD)
    new_ends = ends & ~state.done[:, tf.newaxis]
    if goal.settings.ends_within_beam:
        new_ends &= tf.range(ends.shape[1]) < state.active.log_probs.shape[1]
    scores = goal.score(candidates.log_probs, length)
    if coverage:
        scores += search_state.gather_slots(coverage[0], candidates.parents)
    finished = _finish(state.finished, candidates, new_ends, scores, length)
    num_finished = state.num_finished
    active, parents = _select_active(candidates, ends, goal)
    history = search_state.record_step(state.history, state.length, active.token_ids, parents)
    # A sentence that is done keeps its log-probabilities, because it may have to return its active hypotheses.
    log_probs = tf.where(state.done[:, tf.newaxis], state.active.log_probs, active.log_probs)
    if coverage:
        parent_scores = search_state.gather_slots(coverage[0], parents)
        coverage = (tf.where(state.done[:, tf.newaxis], state.coverage_scores[0], parent_scores),)
    best = tf.reduce_max(log_probs, axis=1) if num_groups > 1 else log_probs[:, 0]
    limits = _repeat_for_groups(goal.max_lengths, num_groups)
    count = finished.scores.shape[1]
    # A group that is done no longer diverts the other groups from its tokens. All groups therefore continue as if all
    # hypotheses were returned, regardless of num_best.
    rank = count if num_groups > 1 else goal.num_returned
    rank = min(rank, count) if isinstance(rank, int) else tf.minimum(rank, count)
    last = finished.scores[:, rank - 1]
    done = state.done | (length >= limits) | (last >= goal.score(best, limits))  # a bound on active scores
    if goal.settings.patience:
        num_finished += tf.math.count_nonzero(new_ends, axis=1, dtype=tf.int32)
        done |= tf.cast(num_finished, tf.float32) >= goal.settings.patience * log_probs.shape[1]
    stepped = SearchState(
        length=length,
        done=done,
        active=Active(active.token_ids, log_probs),
        finished=finished,
        num_finished=num_finished,
        history=history,
        open_sentences=state.open_sentences,
        cache=cache,
        tracked=tracked,
        coverage_scores=coverage,
    )
    return search_state.move_caches(stepped, diverse.sentence_slots(parents, num_groups))


def _extend(
    step_fn: StepFunction, state: SearchState, goal: Goal
) -> tuple[Candidates, tuple[tf.Tensor, ...], Cache, Tracked]:
    """Calls the step function on the open sentences.

    Returns the candidates (DEAD in sentences that are not open), the coverage scores of the active hypotheses after
    this step if enabled, the new cache, and the new tracked tensors.
    """
    num_groups = goal.settings.num_groups
    active = Active(
        *(tf.gather(diverse.merge_groups(values, num_groups), state.open_sentences) for values in state.active)
    )
    logits, cache, tracked = tracked_step(step_fn, state, active.token_ids)  # --> [N, vocab]
    may_end = state.length >= tf.gather(goal.min_lengths, state.open_sentences)  # --> [open]
    if goal.restricts:
        candidates = _restricted_candidates(logits, active.log_probs, may_end, state, tracked, goal)
    else:
        candidates = best_candidates(logits, active.log_probs, may_end)  # --> [open, candidates]
    sentences = state.open_sentences
    if num_groups > 1:
        first_groups = num_groups * sentences[:, tf.newaxis]
        sentences = tf.reshape(first_groups + tf.range(num_groups), [-1])  # --> [open * groups]
    defaults = Candidates(DEAD, PAD_ID, 0)
    scattered = (
        search_state.scatter_rows(values, sentences, state.done, default)
        for values, default in zip(candidates, defaults, strict=True)
    )
    coverage: tuple[tf.Tensor, ...] = ()
    if goal.settings.coverage_penalty:
        scores = coverage_score(cache.coverage, goal.settings.coverage_penalty)  # --> [open, beam]
        scores = diverse.split_groups(tf.ensure_shape(scores, active.log_probs.shape), num_groups)
        coverage = (search_state.scatter_rows(scores, sentences, state.done, 0.0),)
    return Candidates(*scattered), coverage, cache, tracked  # --> [batch, candidates]


def _restricted_candidates(
    logits: tf.Tensor, active_log_probs: tf.Tensor, may_end: tf.Tensor, state: SearchState, tracked: Tracked, goal: Goal
) -> Candidates:
    """Returns the candidates under rules, prefixes, constraints or groups: [open, candidates], or per group."""
    settings, beam, vocab = goal.settings, active_log_probs.shape[1], logits.shape[-1]
    log_probs = logits - tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
    log_probs = tf.reshape(log_probs, [-1, beam, vocab])  # --> [open, beam, vocab]
    may_end = may_end[:, tf.newaxis]  # --> [open, 1]
    progress = None
    if goal.constraints is not None:
        phrases = lexical.Phrases.of(tracked.constraints[0], goal.continuations, vocab)
        progress = lexical.progress(texts_of(tracked), phrases)
        may_end &= lexical.may_end(progress)
    bias = restriction_bias(tracked, may_end, state.length, vocab, goal)
    if progress is not None:
        room = tf.gather(goal.max_lengths, state.open_sentences) - state.length - 1  # --> [open]
        return lexical.constrained_candidates(log_probs, active_log_probs, bias, progress, room)
    if settings.num_groups > 1:
        done = tf.gather(tf.reshape(state.done, [-1, settings.num_groups]), state.open_sentences)  # --> [open, groups]
        return diverse.diverse_candidates(log_probs, active_log_probs, bias, done, settings.diversity_strength)
    return biased_candidates(log_probs, active_log_probs, bias)


def _finish(
    finished: Finished, candidates: Candidates, ends: tf.Tensor, scores: tf.Tensor, length: tf.Tensor
) -> Finished:
    """Returns the best among the finished hypotheses and the candidates that end."""
    scores = tf.where(ends, scores, DEAD)
    lengths = tf.where(scores > DEAD, length, 0)
    new = Finished(scores, candidates.log_probs, lengths, candidates.parents)
    pool = tf.nest.map_structure(lambda old, new: tf.concat([old, new], axis=1), finished, new)
    scores, places = tf.math.top_k(pool.scores, finished.scores.shape[1])
    _, *rest = pool
    return Finished(scores, *search_state.gather_slots(rest, places))


def _select_active(candidates: Candidates, ends: tf.Tensor, goal: Goal) -> tuple[Active, tf.Tensor]:
    """Returns the candidates that stay active, and the slots of their parents."""
    first = first_continuing(candidates, ends)
    if goal.constraints is not None:
        log_probs, places = tf.math.top_k(first.log_probs, first.log_probs.shape[1])
        first = Candidates(log_probs, *search_state.gather_slots(tuple(first[1:]), places))
    return Active(first.token_ids, first.log_probs), first.parents


def _repeat_for_groups(values: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Repeats values of sentences, [batch], for their groups, [batch * groups]."""
    return values if num_groups == 1 else tf.repeat(values, num_groups)


def _result(state: SearchState, goal: Goal, so_far: bool) -> SearchResult:
    """Returns the finished hypotheses of each sentence with their tokens, or its active ones; see `result`."""
    finished, active, num_groups = state.finished, state.active, goal.settings.num_groups
    has_ended = diverse.any_finished(finished, num_groups)  # --> [batch * groups, 1]
    limits = _repeat_for_groups(goal.max_lengths, num_groups)
    if so_far:
        limits = tf.minimum(limits, state.length)
    active_lengths = tf.where(active.log_probs > DEAD, tf.maximum(limits, 0)[:, tf.newaxis], 0)
    active_scores = goal.score(active.log_probs, active_lengths)
    if state.coverage_scores:
        active_scores += state.coverage_scores[0]
    if so_far:
        best_active = tf.reduce_max(active_scores, axis=1, keepdims=True)  # coverage may change the order
        has_ended &= state.done[:, tf.newaxis] | (finished.scores[:, :1] >= best_active)
    lengths = tf.where(has_ended, finished.lengths, active_lengths)
    log_probs = tf.where(has_ended, finished.log_probs, active.log_probs)
    scores = tf.where(has_ended, finished.scores, active_scores)

    # The history has only active hypotheses. A finished one is the tokens of its parent and an end symbol.
    text_lengths = tf.where(has_ended, tf.maximum(lengths - 1, 0), lengths)
    slots = tf.where(has_ended, finished.parents, tf.range(active.log_probs.shape[1]))
    history = tf.nest.map_structure(lambda steps: steps[: state.length], state.history)
    token_ids = search_state.trace_back(history, slots, text_lengths)  # --> [batch, beam, length]
    is_end = tf.range(state.length) == (lengths - 1)[:, :, tf.newaxis]
    token_ids = tf.where(is_end & has_ended[:, :, tf.newaxis], EOS_ID, token_ids)
    if goal.constraints is not None:  # the limit may have been reached before all constraints were met
        is_met = lexical.are_met(token_ids, goal.constraints, goal.continuations)
        token_ids = tf.where(is_met[:, :, tf.newaxis], token_ids, PAD_ID)
        scores, log_probs = (tf.where(is_met, values, DEAD) for values in (scores, log_probs))
        return _best_first(token_ids, scores, log_probs, tf.where(is_met, lengths, 0), num_groups)
    if num_groups == 1 and not state.coverage_scores:
        return SearchResult(token_ids, scores, log_probs, lengths)
    return _best_first(token_ids, scores, log_probs, lengths, num_groups)


def _best_first(
    token_ids: tf.Tensor, scores: tf.Tensor, log_probs: tf.Tensor, lengths: tf.Tensor, num_groups: int
) -> SearchResult:
    """Sorts the hypotheses of all groups of a sentence by score."""
    scores, log_probs, lengths = (diverse.merge_groups(values, num_groups) for values in (scores, log_probs, lengths))
    beam, steps = scores.shape[1], tf.shape(token_ids)[2]
    token_ids = tf.reshape(token_ids, [tf.shape(scores)[0], beam, steps])  # --> [batch, beam, steps]
    scores, places = tf.math.top_k(scores, beam)
    token_ids, log_probs, lengths = search_state.gather_slots((token_ids, log_probs, lengths), places)
    return SearchResult(token_ids, scores, log_probs, lengths)
