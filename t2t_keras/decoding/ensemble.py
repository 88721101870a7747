"""Several models that decode as one: what they predict is averaged at every token."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf

from t2t_keras.errors import InputError

Cache = dict[str, Any]
Combination = Literal["probabilities", "log_probabilities"]

# The entries of a cache that every member has of its own; see beam_search.py.
_ENTRIES = ("hypotheses", "self_attention", "memory", "constants")

_SMALLEST_PROBABILITY = 1e-37  # what float32 holds to full precision, and a logarithm that is finite


def combined_logits(logits: Sequence[tf.Tensor], combination: Combination) -> tf.Tensor:
    """The members' predictions as one; few passes over memory, since a large batch's logits fit no cache.

    Args:
        logits: float [..., vocab] of each member.
        combination: "probabilities" for their mean, where one below 1e-37 counts as that; "log_probabilities" for
            the mean of their logarithms (the geometric mean).

    Returns:
        float32 [..., vocab], to be normalised as any logits are: logarithms of the combined probabilities, but for
        a constant in each row.

    Raises:
        ValueError: the members' vocabularies are not of one size.
    """
    sizes = [member.shape[-1] for member in logits]
    if len(set(sizes)) > 1:
        raise ValueError(f"logits must be over one vocabulary, got sizes {sizes}")
    logits = [tf.cast(member, tf.float32) for member in logits]
    if combination == "log_probabilities":
        return tf.add_n(logits) / len(logits)  # what normalises each is a constant in each row
    total = tf.add_n([tf.nn.softmax(member) for member in logits])  # --> [..., vocab]
    return tf.math.log(tf.maximum(total, _SMALLEST_PROBABILITY))


class Ensemble:
    """Models with one vocabulary that decode as one; has a `Transformer`'s decoding methods.

    Sizes may differ. Each entry of the cache, but for the position, is a tuple of the members' entries, so that a
    search moves all of them alike; with coverage, "hypotheses" is a dict of that tuple as "members" and of their mean
    "coverage".

    Args:
        models: with `Transformer`'s decoding methods.
        combination: what is averaged; see `combined_logits`.

    Raises:
        ValueError: no model, or an unknown combination.

    Reference:
        Sutskever et al., "Sequence to Sequence Learning with Neural Networks", 2014.
    """

    def __init__(self, models: Sequence[Any], combination: Combination = "probabilities") -> None:
        if not models:
            raise ValueError("models must hold at least one")
        if combination not in ("probabilities", "log_probabilities"):
            raise ValueError(f"combination must be 'probabilities' or 'log_probabilities', got {combination!r}")
        self.models = tuple(models)
        self.combination = combination

    def states(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tuple[Any, ...]:
        """Every member's states of whole targets.

        Args:
            inputs: "source", int [batch, source_len], and "target", int [batch, target_len].
            training: whether the members' dropout is active.
        """
        return tuple(model.states(inputs, training=training) for model in self.models)

    def logits(self, states: tuple[Any, ...]) -> tf.Tensor:
        """What follows from the members' states, those of `states` or some positions of them: float32 [..., vocab]."""
        return self._combined([model.logits(own) for model, own in zip(self.models, states, strict=True)])

    def encode(self, source: tf.Tensor) -> tuple[Any, ...]:
        """Every member's memory of the source, int [batch, source_len]."""
        return tuple(model.encode(source) for model in self.models)

    def start_cache(
        self,
        source: tf.Tensor,
        memory: tuple[Any, ...],
        beam_size: int,
        coverage: bool = False,
        bfloat16: bool = False,
    ) -> Cache:
        """The cache before the first step.

        Args:
            source: int [batch, source_len].
            memory: of `encode`.
            beam_size: hypotheses a sentence.
            coverage: whether the steps add up the attention to the source, for a coverage penalty.
            bfloat16: whether the steps compute their products with the weights in bfloat16.
        """
        members = zip(self.models, memory, strict=True)
        settings = {name: True for name, asked in (("coverage", coverage), ("bfloat16", bfloat16)) if asked}
        return _joined([model.start_cache(source, own, beam_size, **settings) for model, own in members])

    def decode_step(self, token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """One position of every hypothesis.

        Args:
            token_ids: int [batch * beam], the token before this position.
            cache: of `start_cache` or of the step before.

        Returns:
            float32 [batch * beam, vocab], and the cache.
        """
        if isinstance(cache["hypotheses"], dict):
            cache = {**cache, "hypotheses": cache["hypotheses"]["members"]}
        logits, caches = [], []
        for index, model in enumerate(self.models):
            own_cache = {entry: _members(cache[entry])[index] for entry in _ENTRIES}
            own_logits, own_cache = model.decode_step(token_ids, {"position": cache["position"], **own_cache})
            logits.append(own_logits)
            caches.append(own_cache)
        return self._combined(logits), _joined(caches)

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """What a search runs in, for every member that wants to know; see `LiteModel.searching`."""
        with contextlib.ExitStack() as stack:
            for model in self.models:
                if hasattr(model, "searching"):
                    stack.enter_context(model.searching())
            yield

    def end_search(self, cache: Cache) -> None:
        """Ends the search of every member that wants to know; `cache` is that of `start_cache`."""
        for index, model in enumerate(self.models):
            if hasattr(model, "end_search"):
                model.end_search({entry: _members(cache[entry])[index] for entry in _ENTRIES})

    def logits_and_cross_attention(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """The call's result, and the mean of the members' attention.

        Args:
            inputs: as in the call.

        Returns:
            float32 [batch, target_len, vocab] and float32 [batch, layers, heads, target_len, source_len].

        Raises:
            InputError: the members differ in decoder layers or heads.
        """
        logits, weights = zip(*(model.logits_and_cross_attention(inputs) for model in self.models), strict=True)
        shapes = [(member.shape[1], member.shape[2]) for member in weights]
        if len(set(shapes)) > 1:
            found = "; ".join(f"{layers} layers of {heads} heads" for layers, heads in shapes)
            raise InputError(f"the attention of an ensemble is that of models with equal layers and heads, not {found}")
        return self._combined(logits), tf.add_n(weights) / len(weights)

    def alignment_attention(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The mean of the members' `Transformer.alignment_attention`, float32 [batch, target_len, source_len]."""
        return tf.add_n([model.alignment_attention(inputs) for model in self.models]) / len(self.models)

    def _combined(self, logits: Sequence[tf.Tensor]) -> tf.Tensor:
        return combined_logits(logits, self.combination)


def _joined(caches: Sequence[Cache]) -> Cache:
    """One cache from the members', whose positions are one."""
    entries: Cache = {entry: tuple(cache.get(entry) for cache in caches) for entry in _ENTRIES}
    members = entries["hypotheses"]
    if all(isinstance(own, dict) and "coverage" in own for own in members):
        coverage = tf.add_n([own["coverage"] for own in members]) / len(members)  # --> [batch, beam, source_len]
        entries["hypotheses"] = {"members": members, "coverage": coverage}
    return {"position": caches[0]["position"], **entries}


def _members(entry: Any) -> tuple[Any, ...]:
    """The members' entries of one entry of a cache."""
    return entry["members"] if isinstance(entry, dict) else entry
