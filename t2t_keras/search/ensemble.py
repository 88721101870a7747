"""Ensembles: several models that decode as one, with their predictions averaged at every token."""

from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.models.contract import Attentions, Cache, Search, SearchedModel, States, attention_views
from t2t_keras.search.hoisting import HoistedWeights

Combination = Literal["probabilities", "log_probabilities"]

_SMALLEST_PROBABILITY = 1e-37  # a normal float32, whose logarithm is finite


def combined_logits(logits: Sequence[tf.Tensor], combination: Combination) -> tf.Tensor:
    """Averages the members' predictions.

    It makes few passes over memory, because the logits of a large batch do not fit into a CPU's cache.

    Args:
        logits: float [..., vocab] of each member.
        combination: "probabilities" for the arithmetic mean of the probabilities (a sum below 1e-37 counts as 1e-37),
            or "log_probabilities" for the geometric mean.

    Returns:
        float32 [..., vocab], logarithms of the combined probabilities up to a constant per row (not normalised).

    Raises:
        ValueError: the members' vocabularies differ in size.
    """
    sizes = [member.shape[-1] for member in logits]
    if len(set(sizes)) > 1:
        raise ValueError(f"logits must be over one vocabulary, got sizes {sizes}")
    logits = [tf.cast(member, tf.float32) for member in logits]
    if combination == "log_probabilities":
        return tf.add_n(logits) / len(logits)  # softmax normalisers are constant within a row
    total = tf.add_n([tf.nn.softmax(member) for member in logits])  # --> [..., vocab]
    return tf.math.log(tf.maximum(total, _SMALLEST_PROBABILITY))


class Ensemble:
    """Several models with one vocabulary that decode as one model.

    An ensemble has the capabilities that all of its members have. Each nest of its cache is a tuple of the members'
    nests, so a search reorders them together. Its coverage is the mean of the members' coverage.

    Args:
        models: the members; their families and sizes may differ.
        combination: how predictions are averaged; see `combined_logits`.

    Raises:
        ValueError: `models` is empty, or `combination` is unknown.

    Reference: Sutskever et al., "Sequence to Sequence Learning with Neural Networks", 2014.
    """

    def __init__(self, models: Sequence[SearchedModel], combination: Combination = "probabilities") -> None:
        if not models:
            raise ValueError("models must contain at least one model")
        if combination not in ("probabilities", "log_probabilities"):
            raise ValueError(f"combination must be 'probabilities' or 'log_probabilities', got {combination!r}")
        self.models = tuple(models)
        self.combination = combination

    def states(self, inputs: dict[str, tf.Tensor], **settings: Any) -> States:
        members = [model.states(inputs, **settings) for model in self.models]
        return States(
            tuple(states.hidden for states in members), tf.add_n([states.auxiliary_loss for states in members])
        )

    def logits(self, hidden: tuple[Any, ...]) -> tf.Tensor:
        """Returns the combined logits of the members' hidden states, float32 [..., vocab]."""
        members = zip(self.models, hidden, strict=True)
        return combined_logits([model.logits(member_hidden) for model, member_hidden in members], self.combination)

    def encode(self, source: tf.Tensor) -> tuple[Any, ...]:
        return tuple(model.encode(source) for model in self.models)

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset.intersection(*(model.capabilities for model in self.models))

    def start_search(
        self, source: tf.Tensor, memory: tuple[Any, ...], beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        pairs = zip(self.models, memory, strict=True)
        searches = [
            model.start_search(source, member_memory, beam_size, capabilities=capabilities)
            for model, member_memory in pairs
        ]
        steps = [HoistedWeights().wrap(search.step) for search in searches]  # one each: names of weights may clash

        def step(token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
            nests = zip(cache.per_hypothesis, cache.per_sentence, cache.source, strict=True)
            members = [Cache(cache.position, *nest, cache.coverage) for nest in nests]
            results = [step(token_ids, member_cache) for step, member_cache in zip(steps, members, strict=True)]
            logits, caches = zip(*results, strict=True)
            return combined_logits(logits, self.combination), _join(caches)

        return Search(step, _join([search.cache for search in searches]))

    def logits_and_attention(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Attentions]:
        """Returns the combined logits, float32 [batch, target_len, vocab], and the mean attention of the members.

        A kind of self-attention is omitted (0 layers) if the members differ in its layers or heads.

        Raises:
            InputError: the members differ in layers or heads of cross-attention.
        """
        logits, attentions = zip(
            *(attention_views(model).logits_and_attention(inputs) for model in self.models), strict=True
        )
        kinds = Attentions(*zip(*attentions, strict=True))
        shapes = [(member.shape[1], member.shape[2]) for member in kinds.cross]
        if len(set(shapes)) > 1:
            sizes = "; ".join(f"{layers} layers of {heads} heads" for layers, heads in shapes)
            raise InputError(
                "the models of an ensemble need the same number of layers and heads to average their attention; "
                f"these have {sizes}"
            )
        return combined_logits(logits, self.combination), Attentions(*map(_mean_attention, kinds))

    def alignment_attention(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the mean of the members' alignment attention, float32 [batch, target_len, source_len]."""
        return tf.add_n([attention_views(model).alignment_attention(inputs) for model in self.models]) / len(
            self.models
        )


def _mean_attention(members: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the mean of the members' attention, float32 [batch, layers, heads, query_len, key_len].

    It has 0 layers if the members differ in layers or heads.
    """
    if len({(member.shape[1], member.shape[2]) for member in members}) > 1:
        return members[0][:, :0]
    return tf.add_n(members) / len(members)


def _join(caches: Sequence[Cache]) -> Cache:
    """Joins the caches of the members, which are all at the same position."""
    return Cache(
        position=caches[0].position,
        per_hypothesis=tuple(cache.per_hypothesis for cache in caches),
        per_sentence=tuple(cache.per_sentence for cache in caches),
        source=tuple(cache.source for cache in caches),
        coverage=tf.add_n([cache.coverage for cache in caches]) / len(caches),
    )
