"""Lexical constraints, which every output must meet, by dynamic beam allocation (Post & Vilar 2018).

A constraint is a list of alternative phrases, and an output meets it if it contains one of them. A phrase may occur
anywhere, and phrases may overlap. An occurrence does not count if the next token continues the phrase's last word; at
the end of a hypothesis it counts until such a token follows.

The weight of a constraint is the length of its shortest phrase. The progress of a hypothesis is the sum of the weights
of the constraints that it meets, and a gain if its text ends with the beginning of a phrase of an unmet constraint. The
gain is the constraint's weight less the number of tokens that the phrase lacks; only the largest gain counts. A token
that continues the last word may continue a phrase, but it may also undo a constraint that this word has met. The
progress is the better one of two cases: the next token begins a word, or it continues the last one. It is computed from
the whole text at every step.

- The end symbol is barred until all constraints are met.
- Candidates are the 2 * beam best tokens of each hypothesis, every token that begins or continues a phrase of an unmet
  constraint, and the end symbol if all constraints are met but the next token could undo one.
- Hypotheses of equal progress form a bank. Slots are allocated in rounds: first the best hypothesis of every bank, in
  order of decreasing progress, then the second best of every bank, and so on.
- A token that makes no progress is dropped if the missing tokens (the sum of all weights less the progress) and an end
  symbol would no longer fit into the sentence's length limit. An output therefore meets its constraints if the limit
  has room for their shortest phrases, provided that each of these phrases begins a word. If rules and prefixes, which
  take precedence, leave only such tokens, these are kept.
- A hypothesis that reaches the limit without meeting all constraints is dropped at the end.

References: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation"; Hu et al. 2019,
"Improved Lexically Constrained Decoding for Translation and Monolingual Rewriting".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.search import state as search_state
from t2t_keras.search.candidates import Candidates, number_of_candidates
from t2t_keras.search.state import DEAD
from t2t_keras.search.top_k import top_k
from t2t_keras.symbols import EOS_ID, PAD_ID

# Pads texts on both sides and stands for "no token"; no token has this id.
_NOTHING = -1


class Phrases(NamedTuple):
    """The constraints' phrases for a batch of sentences, and values computed from them that all steps share.

    All attributes but the first two are [open, constraints * phrases, phrase_len]. Their entry k refers to the phrase's
    first k tokens.

    Attributes:
        continues_word: bool [vocab], whether a token continues a word.
        weights: int32 [open, constraints], length of each constraint's shortest phrase; 0 for padding.
        ids: int32, the token after the first k; 0 for padding.
        ends: bool, whether this token is the phrase's last.
        gains: int32, progress that the first k tokens are worth.
        joins: bool, whether the token after the first k continues a word.
    """

    continues_word: tf.Tensor
    weights: tf.Tensor
    ids: tf.Tensor
    ends: tf.Tensor
    gains: tf.Tensor
    joins: tf.Tensor

    @classmethod
    def of(cls, constraints: tf.Tensor, continuations: Sequence[int], vocab_size: int) -> "Phrases":
        """Returns the phrases of zero-padded constraints, int32 [open, constraints, phrases, phrase_len]."""
        mask = np.zeros(vocab_size, np.bool_)
        mask[list(continuations)] = True
        continues_word = tf.constant(mask)
        is_token = constraints != PAD_ID
        sizes = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=-1)  # --> [open, constraints, phrases]
        weights = tf.reduce_min(tf.where(sizes > 0, sizes, tf.int32.max), axis=2)
        weights = tf.where(weights < tf.int32.max, weights, 0)
        places = tf.range(tf.shape(constraints)[3])
        missing = sizes[..., tf.newaxis] - places  # --> [open, constraints, phrases, phrase_len]
        gains = tf.where(is_token, tf.maximum(weights[..., tf.newaxis, tf.newaxis] - missing, 0), 0)
        joins = is_token & _gather_flags(continues_word, constraints)
        columns = (constraints, missing == 1, gains, joins)
        shape = tf.shape(constraints)
        return cls(continues_word, weights, *(tf.reshape(values, [shape[0], -1, shape[3]]) for values in columns))

    def any_of_constraint(self, values: tf.Tensor) -> tf.Tensor:
        """Reduces bool [..., constraints * phrases] by "or" over the phrases of each constraint, [..., constraints]."""
        return tf.reduce_any(self._split_by_constraint(values), axis=-1)

    def max_of_constraint(self, values: tf.Tensor) -> tf.Tensor:
        """Reduces int32 [..., constraints * phrases] to the maximum over each constraint, [..., constraints]."""
        return tf.reduce_max(self._split_by_constraint(values), axis=-1)

    def _split_by_constraint(self, values: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([tf.shape(values)[:-1], tf.shape(self.weights)[1:], [-1]], axis=0)
        return tf.reshape(values, shape)  # --> [..., constraints, phrases]

    def progress(
        self, met: tf.Tensor, remains_met: tf.Tensor, begin_gains: tf.Tensor, join_gains: tf.Tensor
    ) -> tf.Tensor:
        """Returns the progress of texts, int32 [...], where the first of their axes is open.

        Args:
            met: bool [..., constraints], whether the constraint is met.
            remains_met: bool [..., constraints], whether it remains met if the last word is continued.
            begin_gains: int32 [..., constraints], the constraint's largest gain if the next token begins a word.
            join_gains: int32 [..., constraints], its largest gain if the next token continues the last word.
        """
        shape, middle = tf.shape(self.weights), tf.ones([met.shape.rank - 2], tf.int32)
        weights = tf.reshape(self.weights, tf.concat([shape[:1], middle, shape[1:]], axis=0))
        choices = []
        for is_met, gains in ((met, begin_gains), (remains_met, join_gains)):
            gain = tf.maximum(tf.reduce_max(tf.where(is_met, 0, gains), axis=-1), 0)  # negative if none
            choices.append(tf.reduce_sum(tf.where(is_met, weights, 0), axis=-1) + gain)
        return tf.maximum(*choices)


class Progress(NamedTuple):
    """The progress of the active hypotheses with their constraints.

    Attributes:
        phrases: the phrases of the constraints.
        met: bool [open, beam, constraints], whether the text meets the constraint; true for padding.
        remains_met: bool [open, beam, constraints], whether it still does if its last word is continued.
        continues: bool [open, beam, constraints * phrases, phrase_len], whether the text ends with the first k tokens
            of the phrase, for entry k; false where `remains_met` is true.
    """

    phrases: Phrases
    met: tf.Tensor
    remains_met: tf.Tensor
    continues: tf.Tensor

    def next_ids(self) -> tf.Tensor:
        """Returns the tokens that begin or continue a phrase of an unmet constraint; all other entries are -1.

        They are int32 [open, beam, constraints * phrases, phrase_len].
        """
        num_phrases = tf.shape(self.phrases.ids)[1] // tf.maximum(tf.shape(self.phrases.weights)[1], 1)
        is_open = self.continues & ~tf.repeat(self.met, num_phrases, axis=2)[..., tf.newaxis]
        return tf.where(is_open, self.phrases.ids[:, tf.newaxis], _NOTHING)

    def now(self) -> tf.Tensor:
        """Returns the current progress, int32 [open, beam]."""
        gains = tf.where(self.continues, self.phrases.gains[:, tf.newaxis], 0)
        joins = self.phrases.joins[:, tf.newaxis]
        begin_gains, join_gains = (self.phrases.max_of_constraint(_masked_max(gains, mask)) for mask in (~joins, joins))
        return self.phrases.progress(self.met, self.remains_met, begin_gains, join_gains)

    def after(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the progress after each of several alternative next tokens; both int32 [open, beam, tokens]."""
        phrases = self.phrases
        # --> [open, beam, tokens, constraints * phrases, phrase_len]
        matches = token_ids[..., tf.newaxis, tf.newaxis] == phrases.ids[:, tf.newaxis, tf.newaxis]
        matches &= self.continues[:, :, tf.newaxis]
        columns = (tf.pad(values[..., 1:], [[0, 0], [0, 0], [0, 1]]) for values in (phrases.gains, phrases.joins))
        gains, joins = (values[:, tf.newaxis, tf.newaxis] for values in columns)
        gains = tf.where(matches, gains, 0)
        begin_gains, join_gains = (phrases.max_of_constraint(_masked_max(gains, mask)) for mask in (~joins, joins))
        is_complete = tf.reduce_any(matches & phrases.ends[:, tf.newaxis, tf.newaxis], axis=-1)
        continues_word = tf.gather(phrases.continues_word, token_ids)[..., tf.newaxis]
        remains_met = tf.where(continues_word, self.remains_met[:, :, tf.newaxis], self.met[:, :, tf.newaxis])
        return phrases.progress(
            remains_met | phrases.any_of_constraint(is_complete), remains_met, begin_gains, join_gains
        )


def _masked_max(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the maximum over the last axis of the entries where `mask` is true, but at least 0."""
    return tf.reduce_max(tf.where(mask, values, 0), axis=-1)


def progress(texts: tf.Tensor, phrases: Phrases) -> Progress:
    """Computes the progress of texts, int32 [open, beam, length]."""
    length, phrase_len = tf.shape(texts)[2], tf.shape(phrases.ids)[2]
    is_token = phrases.ids != PAD_ID
    places = tf.range(phrase_len)
    edges = [[0, 0], [0, 0], [phrase_len, phrase_len + 1]]
    padded = tf.pad(texts, edges, constant_values=_NOTHING)  # --> [open, beam, length + 2 * phrase_len + 1]

    # A window is one token longer than the longest phrase, because the token after a phrase must not continue its word.
    starts = phrase_len + tf.range(length)
    # --> [open, beam, length, phrase_len + 1]
    windows = tf.gather(padded, starts[:, tf.newaxis] + tf.range(phrase_len + 1), axis=2)
    continues_word = _gather_flags(phrases.continues_word, windows) & (windows > PAD_ID)
    edges = [[0, 0], [0, 0], [0, 1]]
    after_end = tf.pad(phrases.ends, [[0, 0], [0, 0], [1, 0]])  # --> [open, constraints * phrases, phrase_len + 1]
    is_beyond = ~tf.pad(is_token, edges) & ~after_end
    # --> [open, beam, constraints * phrases, length, phrase_len + 1]
    matches = windows[:, :, tf.newaxis] == tf.pad(phrases.ids, edges)[:, tf.newaxis, :, tf.newaxis]
    matches |= is_beyond[:, tf.newaxis, :, tf.newaxis]
    matches |= after_end[:, tf.newaxis, :, tf.newaxis] & ~continues_word[:, :, tf.newaxis]
    # --> [open, beam, constraints * phrases, length]
    contained = tf.reduce_all(matches, axis=-1) & is_token[:, tf.newaxis, :, :1]
    is_padding = (phrases.weights == 0)[:, tf.newaxis]
    met = phrases.any_of_constraint(tf.reduce_any(contained, axis=-1)) | is_padding
    sizes = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=-1, keepdims=True)
    before_end = tf.range(length) + sizes < length  # --> [open, constraints * phrases, length]
    remains_met = tf.reduce_any(contained & before_end[:, tf.newaxis], axis=-1)
    remains_met = phrases.any_of_constraint(remains_met) | is_padding

    # A phrase's first k tokens must equal the text's last k.
    starts = phrase_len + length - places
    tails = tf.gather(padded, starts[:, tf.newaxis] + places, axis=2)  # --> [open, beam, phrase_len (k), phrase_len]
    matches = tails[:, :, tf.newaxis] == phrases.ids[:, tf.newaxis, :, tf.newaxis]
    matches |= places >= places[:, tf.newaxis]  # --> [open, beam, constraints * phrases, phrase_len (k), phrase_len]
    num_phrases = tf.shape(phrases.ids)[1] // tf.maximum(tf.shape(phrases.weights)[1], 1)
    is_open = ~tf.repeat(remains_met, num_phrases, axis=2)[..., tf.newaxis]
    return Progress(phrases, met, remains_met, tf.reduce_all(matches, axis=-1) & is_token[:, tf.newaxis] & is_open)


def _gather_flags(flags: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Gathers bool [vocab] by ids of any shape; ids outside of the vocabulary get the first or the last flag."""
    return tf.gather(flags, tf.clip_by_value(ids, 0, tf.size(flags) - 1))


def are_met(texts: tf.Tensor, constraints: tf.Tensor, continuations: Sequence[int]) -> tf.Tensor:
    """Returns which outputs meet all of their constraints, bool [batch, beam].

    Args:
        texts: int32 [batch, beam, length], padded with zeros.
        constraints: int32 [batch, constraints, phrases, phrase_len]; see `Goal`.
        continuations: tokens that continue a word.
    """
    # The size of the vocabulary is not known here. No token after the last continuation continues a word.
    size = max(continuations, default=0) + 2
    return may_end(progress(texts, Phrases.of(tf.cast(constraints, tf.int32), continuations, size)))


def may_end(beam_progress: Progress) -> tf.Tensor:
    """Returns which hypotheses meet all their constraints, bool [open, beam]."""
    return tf.reduce_all(beam_progress.met, axis=-1)


def constrained_candidates(
    log_probs: tf.Tensor, active_log_probs: tf.Tensor, bias: tf.Tensor, beam_progress: Progress, room: tf.Tensor
) -> Candidates:
    """Allocates the slots of the next step to candidates: [open, candidates], in order of allocation.

    Args:
        log_probs: float32 [open, beam, vocab], of each next token.
        active_log_probs: float32 [open, beam], total log-probabilities of the active hypotheses.
        bias: float32 [open, beam, vocab], -inf for barred tokens.
        beam_progress: progress of the active hypotheses.
        room: int32 [open], number of tokens that the sentence's limit allows after the next one.
    """
    beam, vocab = active_log_probs.shape[1], log_probs.shape[-1]
    flat = tf.reshape(log_probs + bias, [-1, vocab])
    best, best_ids = top_k(flat, min(2 * beam, vocab))
    phrase_ids = tf.reshape(beam_progress.next_ids(), [tf.shape(flat)[0], -1])
    may_be_lost = may_end(beam_progress) & ~tf.reduce_all(beam_progress.remains_met, axis=-1)
    end_ids = tf.where(may_be_lost, EOS_ID, _NOTHING)
    phrase_ids = _new_ids(tf.concat([phrase_ids, tf.reshape(end_ids, [-1, 1])], axis=1), best_ids)  # --> [N, new]
    phrase_log_probs = tf.gather(flat, phrase_ids, batch_dims=1)
    phrase_log_probs = tf.where(phrase_ids > PAD_ID, phrase_log_probs, DEAD)
    ids = tf.concat([best_ids, phrase_ids], axis=1)  # --> [N, tokens]
    shape = [-1, beam, tf.shape(ids)[1]]
    ids, token_log_probs = tf.reshape(ids, shape), tf.reshape(tf.concat([best, phrase_log_probs], axis=1), shape)

    after = beam_progress.after(ids)  # --> [open, beam, tokens]
    total = tf.reduce_sum(beam_progress.phrases.weights, axis=-1)  # --> [open]
    missing = total[:, tf.newaxis, tf.newaxis] - after
    is_allowed = (
        (missing == 0) | (missing < room[:, tf.newaxis, tf.newaxis]) | (after > beam_progress.now()[:, :, tf.newaxis])
    )
    is_allowed &= token_log_probs > DEAD
    token_log_probs = tf.where(is_allowed | ~tf.reduce_any(is_allowed, axis=-1, keepdims=True), token_log_probs, DEAD)
    return _allocate(token_log_probs + active_log_probs[:, :, tf.newaxis], ids, after, tf.reduce_max(total))


def _new_ids(ids: tf.Tensor, known_ids: tf.Tensor) -> tf.Tensor:
    """Returns the distinct positive ids of int32 [rows, count] that are not among `known_ids` [rows, ...].

    They are int32 [rows, new], in descending order and padded with zeros.
    """
    ids = tf.sort(ids, axis=1, direction="DESCENDING")
    is_repeated = ids == tf.pad(ids[:, :-1], [[0, 0], [1, 0]], constant_values=_NOTHING)
    is_known = tf.reduce_any(ids[:, :, tf.newaxis] == known_ids[:, tf.newaxis], axis=-1)
    ids = tf.sort(tf.where(is_repeated | is_known, PAD_ID, tf.maximum(ids, PAD_ID)), axis=1, direction="DESCENDING")
    # Few remain: many phrases begin with the same token, and hardly any phrase is under way.
    return ids[:, : tf.maximum(tf.reduce_max(tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)), 0)]


def _allocate(log_probs: tf.Tensor, token_ids: tf.Tensor, banks: tf.Tensor, last_bank: tf.Tensor) -> Candidates:
    """Allocates slots in rounds: the best token of every bank, then the second best of every bank, and so on.

    Args:
        log_probs: float32 [open, beam, tokens], total log-probabilities.
        token_ids: int32 [open, beam, tokens].
        banks: int32 [open, beam, tokens], progress.
        last_bank: int32 scalar, the largest possible progress.
    """
    tokens, num_candidates = tf.shape(token_ids)[2], number_of_candidates(token_ids.shape[1])
    flat = [tf.reshape(values, [tf.shape(token_ids)[0], -1]) for values in (log_probs, token_ids, banks)]
    log_probs, places = tf.math.top_k(flat[0], tf.shape(flat[0])[1])  # sorts, most probable first
    token_ids, banks = search_state.gather_slots(flat[1:], places)
    members = tf.one_hot(banks, last_bank + 1, dtype=tf.int32)  # --> [open, beam * tokens, banks]
    rounds = tf.gather(tf.cumsum(members, axis=1, exclusive=True), banks, batch_dims=2)
    order = rounds * (last_bank + 1) + last_bank - banks
    order = tf.where(log_probs > DEAD, order, tf.int32.max)
    _, first = tf.math.top_k(-order, num_candidates)  # --> [open, candidates]
    return Candidates(*search_state.gather_slots((log_probs, token_ids, places // tokens), first))
