"""Lexical constraints: phrases that an output must contain, by dynamic beam allocation (Post & Vilar 2018).

A hypothesis' progress is the number of tokens of all phrases that its text contains (anywhere, overlaps allowed), plus
the longest beginning of another phrase that its text ends with. It is computed from the whole text at every step.

- The end symbol is barred until all phrases are present.
- Candidates are the 2 * beam best tokens of each hypothesis and every token that begins or continues a missing phrase.
- Hypotheses of equal progress form a bank. Places are allocated in rounds: first the best of every bank, those with
  more progress first, then the second of every bank, and so on.
- A token without progress is dropped if the missing tokens and an end symbol would no longer fit into the sentence's
  limit. So an output has all its phrases if the limit has room for their tokens. If rules and prefixes, which take
  precedence, leave only such tokens, they are kept.

Reference: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation".
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.search import state as search_state
from t2t_keras.search.candidates import Candidates, number_of_candidates
from t2t_keras.search.state import DEAD
from t2t_keras.search.top_k import top_k
from t2t_keras.symbols import PAD_ID

# Pads texts on both sides and means "no token"; equal to no id.
_NOTHING = -1


class Progress(NamedTuple):
    """The progress of the living hypotheses with their phrases.

    Attributes:
        sizes: int32 [open, phrases], tokens of each phrase; 0 for padding.
        met: bool [open, beam, phrases], whether the text contains the phrase; true for padding.
        next_ids: int32 [open, beam, phrases, phrase_len], each phrase token whose predecessors in the phrase end the
            text; -1 for other tokens and phrases that are met.
    """

    sizes: tf.Tensor
    met: tf.Tensor
    next_ids: tf.Tensor

    def met_tokens(self) -> tf.Tensor:
        """Tokens of the phrases that are met, int32 [open, beam]."""
        return tf.reduce_sum(tf.where(self.met, self.sizes[:, tf.newaxis], 0), axis=-1)

    def now(self) -> tf.Tensor:
        """The progress, int32 [open, beam]."""
        places = tf.range(tf.shape(self.next_ids)[3])  # place = number of tokens before it
        longest = tf.reduce_max(tf.where(self.next_ids > 0, places, 0), axis=[2, 3])
        return self.met_tokens() + tf.maximum(longest, 0)  # without phrases, the maximum is the lowest integer

    def after(self, token_ids: tf.Tensor) -> tf.Tensor:
        """The progress after each of several alternative next tokens; both int32 [open, beam, tokens]."""
        next_ids = self.next_ids[:, :, tf.newaxis]  # --> [open, beam, 1, phrases, phrase_len]
        fits = (token_ids[:, :, :, tf.newaxis, tf.newaxis] == next_ids) & (next_ids > 0)
        taken = tf.range(1, tf.shape(self.next_ids)[3] + 1)
        # --> [open, beam, tokens, phrases, phrase_len]
        matched = tf.where(fits, taken, 0)
        sizes = self.sizes[:, tf.newaxis, tf.newaxis]  # --> [open, 1, 1, phrases]
        longest = tf.reduce_max(matched, axis=-1)  # --> [open, beam, tokens, phrases]
        complete = (longest == sizes) & (sizes > 0)
        partial = tf.maximum(tf.reduce_max(tf.where(complete, 0, longest), axis=-1), 0)
        return self.met_tokens()[:, :, tf.newaxis] + tf.reduce_sum(tf.where(complete, sizes, 0), axis=-1) + partial


def progress(texts: tf.Tensor, phrases: tf.Tensor) -> Progress:
    """The progress of texts, int32 [open, beam, length]; phrases are zero-padded int32 [open, phrases, phrase_len]."""
    length, phrase_len = tf.shape(texts)[2], tf.shape(phrases)[2]
    inside = phrases != PAD_ID
    sizes = tf.reduce_sum(tf.cast(inside, tf.int32), axis=-1)  # --> [open, phrases]
    places = tf.range(phrase_len)
    edges = [[0, 0], [0, 0], [phrase_len, phrase_len]]
    padded = tf.pad(texts, edges, constant_values=_NOTHING)  # --> [open, beam, length + 2 phrase_len]

    starts = phrase_len + tf.range(length)
    windows = tf.gather(padded, starts[:, tf.newaxis] + places, axis=2)  # --> [open, beam, length, phrase_len]
    same = windows[:, :, tf.newaxis] == phrases[:, tf.newaxis, :, tf.newaxis]
    same |= ~inside[:, tf.newaxis, :, tf.newaxis]  # --> [open, beam, phrases, length, phrase_len]
    met = tf.reduce_any(tf.reduce_all(same, axis=-1), axis=-1) | (sizes == 0)[:, tf.newaxis]

    # A phrase's first k tokens must equal the text's last k.
    starts = phrase_len + length - places
    tails = tf.gather(padded, starts[:, tf.newaxis] + places, axis=2)  # --> [open, beam, phrase_len (k), phrase_len]
    same = tails[:, :, tf.newaxis] == phrases[:, tf.newaxis, :, tf.newaxis]
    same |= places >= places[:, tf.newaxis]  # --> [open, beam, phrases, phrase_len (k), phrase_len]
    continues = tf.reduce_all(same, axis=-1) & inside[:, tf.newaxis] & ~met[:, :, :, tf.newaxis]
    return Progress(sizes, met, tf.where(continues, phrases[:, tf.newaxis], _NOTHING))


def may_end(beam_progress: Progress) -> tf.Tensor:
    """Which hypotheses have all their phrases, bool [open, beam]."""
    return tf.reduce_all(beam_progress.met, axis=-1)


def constrained_candidates(
    log_probs: tf.Tensor, living_log_probs: tf.Tensor, bias: tf.Tensor, beam_progress: Progress, room: tf.Tensor
) -> Candidates:
    """The candidates that get the places of the next step, in order, [open, candidates].

    Args:
        log_probs: float32 [open, beam, vocab], of each next token.
        living_log_probs: float32 [open, beam].
        bias: float32 [open, beam, vocab], -inf for barred tokens.
        beam_progress: progress of the living hypotheses.
        room: int32 [open], tokens that the sentence's limit allows after the next one.
    """
    beam, vocab = living_log_probs.shape[1], log_probs.shape[-1]
    flat = tf.reshape(log_probs + bias, [-1, vocab])
    best, best_ids = top_k(flat, min(2 * beam, vocab))
    phrase_ids = tf.reshape(beam_progress.next_ids, [tf.shape(flat)[0], -1])  # --> [N, phrases * phrase_len]
    phrase_log_probs = tf.gather(flat, tf.maximum(phrase_ids, PAD_ID), batch_dims=1)
    phrase_log_probs = tf.where(_is_new(phrase_ids, best_ids), phrase_log_probs, DEAD)
    ids = tf.concat([best_ids, tf.maximum(phrase_ids, PAD_ID)], axis=1)  # --> [N, tokens]
    shape = [-1, beam, tf.shape(ids)[1]]
    ids, token_log_probs = tf.reshape(ids, shape), tf.reshape(tf.concat([best, phrase_log_probs], axis=1), shape)

    after = beam_progress.after(ids)  # --> [open, beam, tokens]
    missing = tf.reduce_sum(beam_progress.sizes, axis=-1)[:, tf.newaxis, tf.newaxis] - after
    fits = (
        (missing == 0) | (missing < room[:, tf.newaxis, tf.newaxis]) | (after > beam_progress.now()[:, :, tf.newaxis])
    )
    fits &= token_log_probs > DEAD
    token_log_probs = tf.where(fits | ~tf.reduce_any(fits, axis=-1, keepdims=True), token_log_probs, DEAD)
    return _in_rounds(
        token_log_probs + living_log_probs[:, :, tf.newaxis], ids, after, tf.size(beam_progress.next_ids[0, 0])
    )


def _is_new(ids: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Which ids [rows, count] are tokens, and occur neither in `others` [rows, ...] nor earlier in their row; bool."""
    known = tf.reduce_any(ids[:, :, tf.newaxis] == others[:, tf.newaxis], axis=-1)
    count = tf.range(tf.shape(ids)[1])
    earlier = count < count[:, tf.newaxis]
    repeated = tf.reduce_any((ids[:, :, tf.newaxis] == ids[:, tf.newaxis]) & earlier, axis=-1)
    return (ids > PAD_ID) & ~known & ~repeated


def _in_rounds(log_probs: tf.Tensor, token_ids: tf.Tensor, banks: tf.Tensor, last_bank: tf.Tensor) -> Candidates:
    """The first candidates when every bank gives its best, then its second, and so on.

    Takes total log-probabilities, token ids and progress, all [open, beam, tokens], and the largest possible progress.
    """
    tokens, num_candidates = tf.shape(token_ids)[2], number_of_candidates(token_ids.shape[1])
    flat = [tf.reshape(values, [tf.shape(token_ids)[0], -1]) for values in (log_probs, token_ids, banks)]
    log_probs, places = tf.math.top_k(flat[0], tf.shape(flat[0])[1])  # sorts all, most probable first
    token_ids, banks = search_state.gather_slots(flat[1:], places)
    members = tf.one_hot(banks, last_bank + 1, dtype=tf.int32)  # --> [open, beam * tokens, banks]
    rounds = tf.gather(tf.cumsum(members, axis=1, exclusive=True), banks, batch_dims=2)
    order = rounds * (last_bank + 1) + last_bank - banks
    order = tf.where(log_probs > DEAD, order, tf.int32.max)
    _, first = tf.math.top_k(-order, num_candidates)  # --> [open, candidates]
    return Candidates(*search_state.gather_slots((log_probs, token_ids, places // tokens), first))
