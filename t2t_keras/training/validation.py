"""Computes the loss and the task's score, such as BLEU, on the validation set during training."""

import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_keras import evaluation
from t2t_keras.config import Config
from t2t_keras.data.pipeline import EncodedPairs, dataset_of, validation_batches
from t2t_keras.inference.translator import Translator
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.text.languages import language_of
from t2t_keras.training.devices.strategy import distributed
from t2t_keras.training.devices.workers import Workers

if TYPE_CHECKING:
    from t2t_keras.training.backends import Step


class Validation(NamedTuple):
    """The result of one validation.

    Attributes:
        loss: cross-entropy per target token, without label smoothing.
        perplexity: exponential of the loss.
        score: the task's score of the decoded sentences, such as BLEU, or None if no sentences are decoded.
    """

    loss: float
    perplexity: float
    score: float | None


class Validator:
    """Validates a model during training.

    The loss is computed on all replicas; each worker translates its share of the sentences. The validation set is not
    cleaned, so both sides of its pairs are truncated to `evaluation.MAX_CROSS_ENTROPY_LENGTH` tokens, or to
    `data.max_length` if that is more, to bound the memory.

    Args:
        step: the training step, which holds the weights.
        config: the run's configuration.
        corpus: the encoded validation pairs.
        texts: source and target sentences of the validation set.
        make_translator: called in each validation that decodes sentences, after the model received the current weights.
        workers: the processes that train together.
    """

    def __init__(
        self,
        step: "Step",
        config: Config,
        corpus: EncodedPairs,
        texts: tuple[Sequence[str], Sequence[str]],
        make_translator: Callable[[], Translator],
        workers: Workers,
    ) -> None:
        self._step, self._make_translator, self._workers = step, make_translator, workers
        count = config.train.validation_sentences
        self._sources, self._references = (list(side[:count]) for side in texts)
        self._language = language_of(self._references, config.data.target_language)
        if count:
            task(config.data.task).check_monitored(self._references, ScoringSettings(self._language))
        cut_corpus = _CutCorpus(corpus, max(evaluation.MAX_CROSS_ENTROPY_LENGTH, config.data.max_length))
        if cut_corpus.num_cut and workers.is_chief:
            warning = "%d validation pairs are longer than %d tokens; their loss covers the first %d"
            logging.getLogger(__name__).warning(
                warning, cut_corpus.num_cut, cut_corpus.max_length, cut_corpus.max_length
            )
        longest = int(max(cut_corpus.source_lengths.max(), cut_corpus.target_lengths.max()))
        self._batches = list(
            validation_batches(
                cut_corpus,
                max(config.train.tokens_per_batch // config.train.accumulation_steps, longest),
                step.strategy.num_replicas_in_sync,
                workers.replica_ids,
                static_shapes=config.train.static_shapes,
            )
        )

    def validate(self) -> Validation:
        """Computes the loss of the whole set and the score of its first `validation_sentences` sentences.

        Uses the moving average of the weights if `train.ema_decay` is set.
        """
        shares = dataset_of(share for batch in self._batches for share in batch)
        batches = distributed(self._step.strategy, shares)
        loss_sum, tokens = self._step.validation_loss(batches, len(self._batches))
        loss = loss_sum / tokens
        # A model that diverged still has a loss to report.
        perplexity = math.exp(loss) if loss < 88 else math.inf  # larger values exceed float32 in TensorBoard
        return Validation(loss, perplexity, self._score() if self._sources else None)

    def _score(self) -> float:
        self._step.fill_model()
        translator = self._make_translator()
        count = self._workers.count
        sources = self._sources[self._workers.index :: count]
        translations = [translation.text for translation in translator.translate(sources, scored=False)]
        hypotheses = [""] * len(self._sources)
        for index, share in enumerate(self._workers.gather(json.dumps(translations).encode())):
            hypotheses[index::count] = json.loads(share)
        return translator.task.monitored(hypotheses, self._references, self._language)


class _CutCorpus:
    """`EncodedPairs` with both sides truncated to `max_length` tokens; `num_cut` pairs were longer."""

    def __init__(self, corpus: EncodedPairs, max_length: int) -> None:
        self._corpus, self.max_length = corpus, max_length
        lengths = np.stack([corpus.source_lengths, corpus.target_lengths])  # --> [2, pairs]
        self.num_cut = int((lengths > max_length).any(axis=0).sum())
        self.source_lengths, self.target_lengths = np.minimum(lengths, max_length)

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        return self._fit(self._corpus.source_ids(rows), length)

    def target_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        return self._fit(self._corpus.target_ids(rows), length)

    def _fit(self, ids: np.ndarray, length: int | None) -> np.ndarray:
        ids = ids[:, : self.max_length]
        return ids if length is None else np.pad(ids, [(0, 0), (0, length - ids.shape[1])])
