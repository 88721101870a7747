"""A `ScriptedModel` in the shape of a session; tokens are embedded as themselves."""

import numpy as np
import tensorflow as tf
from scripted import ScriptedModel


class ScriptedSession:
    """As `t2t_keras.lite.session.Session`, with logits from a table.

    Hypotheses have a code each that stands for their text. As in a cache whose entries stay where they were written,
    the search says of each hypothesis which of the codes of the step before is not hidden.
    """

    def __init__(self, model: ScriptedModel, beam_size: int) -> None:
        self.beam_size = beam_size
        self._tables = model.tables
        self._cache = model.start_cache(beam_size)
        self._sentences = np.arange(len(model.tables))

    def advance(self, inputs: np.ndarray, sentences: np.ndarray, bias: np.ndarray | None = None) -> None:
        places = np.searchsorted(self._sentences, sentences)
        self._sentences = sentences
        batch = self._cache._replace(position=())
        kept = tf.nest.map_structure(lambda value: tf.gather(value, places), batch)
        self._cache = kept._replace(position=self._cache.position)
        if bias is not None and bias.shape[2]:
            # Each hypothesis has one entry a step, and that of the last step is its parent.
            steps = (bias == 0).reshape(*bias.shape[:2], -1, self.beam_size)
            assert (steps.sum(axis=3) == 1).all() and (bias[bias != 0] < -1e8).all()
            parents = tf.constant(steps[:, :, -1].argmax(axis=2))
            codes = tf.gather(self._cache.per_hypothesis, parents, batch_dims=1)
            self._cache = self._cache._replace(per_hypothesis=codes)
        tokens = tf.constant(inputs[:, 0].astype(np.int32))
        self._logits, self._cache = ScriptedModel.step(tokens, self._cache)

    def logits_in_place(self) -> np.ndarray:
        return self._logits.numpy()

    def log_totals(self) -> np.ndarray:
        return tf.reduce_logsumexp(self._logits, axis=1).numpy()
