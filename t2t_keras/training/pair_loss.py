"""Fuses the output projection with the loss of two predictions of each token, without storing all logits.

Consistency training (SimCut, R-Drop) computes each target twice. The gradients of cross-entropies and divergences with
respect to both rows of logits are known in the forward pass, as in `fused_loss.py`, whose chunks this module uses. The
loss equals `t2t_keras.losses.pair_losses`; tests compare the two.
"""

import tensorflow as tf

from t2t_keras.losses import PairTerms
from t2t_keras.tensor import Tensor
from t2t_keras.training.fused_loss import ChunkedLoss, FusedLoss, subtracted
from t2t_keras.training.updates import Head
from t2t_keras.values import PositiveFloat, checked


class ChunkedPairLoss(ChunkedLoss):
    """The loss of two predictions of each target, computed with its gradients in chunks of rows.

    Args:
        head: weights of the output head.
        label_smoothing: epsilon, in [0, 1).
        dtype: dtype of the hidden states.
        for_cpu: as in `ChunkedLoss`.
        terms: the factors of the terms of the loss.

    Raises:
        ValueError: `terms.w_kl12` is not above 0.
    """

    def __init__(self, head: Head, label_smoothing: float, dtype: tf.DType, for_cpu: bool, terms: PairTerms) -> None:
        super().__init__(head, label_smoothing, dtype, for_cpu)
        checked("`terms.w_kl12`", PositiveFloat, terms.w_kl12)  # the unit of the gradients in `_chunk`
        self._terms = terms
        self._chunk_rows = (self._chunk_rows + 1) // 2  # two rows of logits per row

    def __call__(self, hidden: Tensor, targets: Tensor, scale: Tensor | float, skip_padding: bool) -> FusedLoss:
        """Computes the loss of whole targets.

        Args:
            hidden: hidden states of the decoder, float [2 * batch, target_len, d_model]; the second half belongs to the
                second prediction of the same targets.
            targets: int32 [batch, target_len], padded with 0.
            scale: as in `ChunkedLoss`.
            skip_padding: as in `ChunkedLoss`.

        Returns:
            The `FusedLoss`; `d_hidden` has the shape of `hidden`.
        """
        pairs = tf.concat(tf.split(hidden, 2), axis=2)  # --> [batch, target_len, 2 * d_model]
        loss = super().__call__(pairs, targets, scale, skip_padding)
        return loss._replace(d_hidden=tf.concat(tf.split(loss.d_hidden, 2, axis=2), axis=0))

    def _chunk(self, h: Tensor, y: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Computes the gradients of both rows of logits, z1 and z2.

        With d = log p1 - log p2 and the target q, the gradient of z1 is
        w_ce1 (p1 - q) + w_kl12 p1 (d - KL(p1 || p2)) + w_kl21 (p1 - p2), and that of z2 is symmetric. They are
        computed in units of `w_kl12`, which saves passes over [chunk, vocab].
        """
        w_ce1, w_ce2, w_kl12, w_kl21 = self._terms
        label_share, ratio = 1.0 - self._smoothing, w_kl21 / w_kl12
        h1, h2 = tf.split(h, 2, axis=1)  # --> [chunk, d_model] each
        prediction1, prediction2 = self._prediction(h1, y), self._prediction(h2, y)
        p1, p2 = prediction1.probabilities, prediction2.probabilities
        offset = (prediction2.normalisers - prediction1.normalisers)[:, None]  # --> [chunk, 1]
        difference = prediction1.logits - prediction2.logits  # --> [chunk, vocab]; d without the offset
        product1 = p1 * difference  # --> [chunk, vocab]
        kl12 = tf.reduce_sum(product1, axis=1, keepdims=True) + offset  # --> [chunk, 1]
        losses = w_kl12 * kl12[:, 0]
        d_z1 = product1 + ((w_ce1 + w_kl21) / w_kl12 + offset - kl12) * p1
        d_z2 = p2 * (1.0 + w_ce2 / w_kl12) - p1 if w_ce2 else p2 - p1
        if w_kl21:
            product2 = p2 * difference  # --> [chunk, vocab]
            kl21 = -tf.reduce_sum(product2, axis=1, keepdims=True) - offset  # --> [chunk, 1]
            losses += w_kl21 * kl21[:, 0]
            d_z1 -= p2 if ratio == 1.0 else ratio * p2
            d_z2 = (1.0 + w_ce2 / w_kl12 - ratio * (offset + kl21)) * p2 - p1
            d_z2 -= product2 if ratio == 1.0 else ratio * product2
        if w_ce1:
            losses += w_ce1 * (prediction1.normalisers - label_share * prediction1.label_logits)
            d_z1 = subtracted(d_z1, y, w_ce1 * label_share / w_kl12)
        if w_ce2:
            losses += w_ce2 * (prediction2.normalisers - label_share * prediction2.label_logits)
            d_z2 = subtracted(d_z2, y, w_ce2 * label_share / w_kl12)
        d_h1, d_head1 = self._gradients(h1, d_z1, w_kl12 * scales)
        d_h2, d_head2 = self._gradients(h2, d_z2, w_kl12 * scales)
        d_head = [a + b for a, b in zip(d_head1, d_head2, strict=True)]
        return losses, w_kl12 * tf.concat([d_h1, d_h2], axis=1), d_head

    def _smoothed_states(self, rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Weights the two hidden states of each row by the factors of their cross-entropies, which add up to 1."""
        w_ce1, w_ce2 = self._terms.w_ce1, self._terms.w_ce2
        h1, h2 = tf.split(rows, 2, axis=1)  # --> [rows, d_model] each
        return w_ce1 * h1 + w_ce2 * h2, tf.concat([w_ce1 * gradient, w_ce2 * gradient], axis=0)
