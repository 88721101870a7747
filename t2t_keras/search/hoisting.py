"""Tensors that depend only on weights, computed once for all steps of a search."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.kernels.contexts import WeightCache
from t2t_keras.models.contract import Cache, StepFunction
from t2t_keras.tensor import Tensor


class HoistedWeights(WeightCache):
    """Computes and caches tensors outside the loop of a search, in the graph in which this object was created."""

    def __init__(self) -> None:
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._outer = WeightCache.innermost()
        self._tensors: dict[str, Any] = {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        if self._outer is not None:
            return self._outer.get(name, compute)
        if name not in self._tensors:
            context = tf.init_scope() if self._graph is None else self._graph.as_default()
            with tf.control_dependencies(None), context:
                self._tensors[name] = compute()
        return self._tensors[name]

    def wrap(self, step: StepFunction) -> StepFunction:
        """Wraps a step function so that this object computes the tensors that depend only on weights."""

        def hoisting_step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            with self:
                return step(token_ids, cache)

        return hoisting_step
