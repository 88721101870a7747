"""Training text for denoising, whose sources are made from the targets when they are read."""

import numpy as np

from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.symbols import PAD_ID
from t2t_keras.text.masking import hashed, spans


class MaskedCorpus:
    """Training text whose sources are the targets with masked spans, drawn anew for each epoch.

    Args:
        corpus: the text; only its targets are used.
        mask_id: token that replaces a span.
        seed: seed of the run.
        epoch: index of the epoch.

    Attributes:
        source_lengths: same as `target_lengths`, which no source exceeds, so that plans do not depend on the masks.
        target_lengths: number of tokens of each target, end symbol included, int32 [pairs].
    """

    def __init__(self, corpus: EncodedCorpus, mask_id: int, seed: int, epoch: int = 0) -> None:
        self._corpus, self._mask_id, self._seed, self._epoch = corpus, mask_id, seed, epoch
        self.source_lengths = self.target_lengths = corpus.target_lengths

    def __len__(self) -> int:
        return len(self._corpus)

    def at(self, epoch: int) -> "MaskedCorpus":
        """Returns the same text with the masks of an epoch."""
        return MaskedCorpus(self._corpus, self._mask_id, self._seed, epoch)

    def target_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        return self._corpus.target_ids(rows, length)

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """Returns the masked ids of some rows, padded with 0, int32 [rows, length].

        The masks are a function of the seed, the epoch and the row.
        """
        rows = np.asarray(rows, np.int64)
        ids = self._corpus.target_ids(rows, length)
        lengths = self.target_lengths[rows]
        masked, begins = (np.zeros(ids.shape, bool) for _ in range(2))
        texts = np.flatnonzero(lengths > 1)  # other rows have only the end symbol
        start = hashed(hashed(np.array([self._seed], np.uint64)) ^ np.uint64(self._epoch))
        masks = spans(hashed(start ^ rows[texts].astype(np.uint64)), lengths[texts] - 1)
        for marks, part in zip((masked, begins), masks, strict=True):
            marks[texts, : part.shape[1]] = part
        keep = (begins | ~masked) & (np.arange(ids.shape[1]) < lengths[:, np.newaxis])
        sources = np.full(ids.shape, PAD_ID, np.int32)
        sources[np.arange(ids.shape[1]) < keep.sum(axis=1)[:, np.newaxis]] = np.where(begins, self._mask_id, ids)[keep]
        return sources
