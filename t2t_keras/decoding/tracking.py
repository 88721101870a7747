"""What a search keeps beside the model's own cache when options ask for it: texts, and what each sentence asks for.

They stand in the cache, as "text" of the hypotheses and as entries of the memory, so that they
follow their hypothesis and leave with their sentence as all else there does. The model's
own entries are then one level deeper, under "model".
"""

from typing import Any

import tensorflow as tf

from t2t_keras.decoding import rules as restrictions
from t2t_keras.decoding.options import SearchOptions
from t2t_keras.decoding.state import SearchState

Cache = dict[str, Any]


def tracked_cache(cache: Cache, options: SearchOptions, max_lengths: tf.Tensor, beam_size: int) -> Cache:
    """A step function's first cache with what the options need.

    Args:
        cache: of the step function.
        options: of the search.
        max_lengths: [batch], of the sentences.
        beam_size: hypotheses a sentence.
    """
    hypotheses, memory = {"model": cache["hypotheses"]}, {"model": cache["memory"]}
    if options.needs_texts:
        hypotheses["text"] = tf.zeros([tf.shape(max_lengths)[0], beam_size, 0], tf.int32)
    for name, rank in (("prefixes", 2), ("constraints", 3), ("excluded", 3)):
        value = getattr(options, name)
        if value is not None:
            memory[name] = _per_sentence(value, name, rank)
    return {**cache, "hypotheses": hypotheses, "memory": memory}


def tracked_step(
    step_fn: Any, state: SearchState, token_ids: tf.Tensor, options: SearchOptions
) -> tuple[tf.Tensor, Cache]:
    """Calls the step function with its own part of the caches.

    Args:
        step_fn: the model.
        state: of the search.
        token_ids: int32 [open, beam], the newest token of each hypothesis.
        options: of the search.

    Returns:
        Logits, float32 [N, vocab], and the cache with the texts that the logits follow.
    """
    own_cache = {
        "position": state.position,
        "hypotheses": state.hypotheses["model"],
        "self_attention": state.self_attention,
        "memory": state.memory["model"],
    }
    logits, cache = step_fn(tf.reshape(token_ids, [-1]), own_cache)
    hypotheses = {"model": cache["hypotheses"]}
    if options.needs_texts:
        # The start symbol stays at the head of every text, so that all steps do the same.
        hypotheses["text"] = tf.concat([state.hypotheses["text"], token_ids[:, :, tf.newaxis]], axis=2)
    return tf.cast(logits, tf.float32), {**cache, "hypotheses": hypotheses, "memory": state.memory}


def texts_of(cache: Cache) -> tf.Tensor:
    """The texts of the living hypotheses, int32 [open, beam, length], without the start symbol."""
    return cache["hypotheses"]["text"][:, :, 1:]


def restriction_bias(
    cache: Cache, may_end: tf.Tensor, position: tf.Tensor, vocab_size: int, options: SearchOptions
) -> tf.Tensor:
    """-inf for every token that may not come next, 0 for the others.

    Args:
        cache: of `tracked_step`.
        may_end: bool [open, beam] or [open, 1], whether the end symbol may come.
        position: int32 scalar, tokens of the texts so far.
        vocab_size: entries of the vocabulary.
        options: of the search.

    Returns:
        float32 [open, beam or 1, vocab].
    """
    bias = restrictions.ending_bias(may_end, vocab_size)
    for rule in options.rules:
        bias += rule(texts_of(cache), vocab_size)
    if options.excluded is not None:
        bias += restrictions.excluded_bias(texts_of(cache), cache["memory"]["excluded"], vocab_size)
    if options.prefixes is not None:
        bias = restrictions.forced_bias(bias, cache["memory"]["prefixes"], position)
    return bias


def _per_sentence(value: Any, name: str, rank: int) -> tf.Tensor:
    """Token ids of sentences, of which only the rank is fixed when traced."""
    value = tf.cast(tf.convert_to_tensor(value), tf.int32)
    if value.shape.rank != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {value.shape}")
    return value
