"""What a model in training is judged by: loss and BLEU on the validation set."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras import evaluation
from t2t_keras.config import Config
from t2t_keras.data.pipeline import Corpus, validation_batches
from t2t_keras.decoding.translator import Translator
from t2t_keras.training.step import TrainingStep
from t2t_keras.training.workers import Workers


class Validation(NamedTuple):
    """One validation.

    Attributes:
        loss: cross-entropy a target token, not smoothed.
        perplexity: its exponential.
        bleu: sacreBLEU of the decoded sentences, or None if none are decoded.
    """

    loss: float
    perplexity: float
    bleu: float | None


class Validator:
    """Validates a model in training, on all its replicas; each worker translates its share of the sentences.

    Args:
        step: holds the model.
        config: the run's.
        corpus: the encoded validation pairs.
        texts: the sources and the references of the same.
        translator: of the model, for BLEU.
        workers: who train together.
    """

    def __init__(
        self,
        step: TrainingStep,
        config: Config,
        corpus: Corpus,
        texts: tuple[Sequence[str], Sequence[str]],
        translator: Translator,
        workers: Workers,
    ) -> None:
        self._step, self._translator, self._workers = step, translator, workers
        count = config.train.validation_sentences
        self._sources, self._references = (list(side[:count]) for side in texts)
        longest = int(max(corpus.source_lengths.max(), corpus.target_lengths.max()))
        self._batches = list(
            validation_batches(
                corpus,
                max(config.train.tokens_per_batch // config.train.accumulation_steps, longest),
                step.strategy.num_replicas_in_sync,
                workers.replica_ids,
                static_shapes=config.train.static_shapes,
            )
        )

    def validate(self) -> Validation:
        """Loss over the whole set, and BLEU of its first `validation_sentences`; with averaged weights if kept."""
        with self._step.averaged_weights():
            loss_sum, tokens = self._step.validation_loss(self._distributed(), len(self._batches))
            loss = loss_sum / tokens
            # A model that diverged still has a loss to report.
            perplexity = math.exp(loss) if loss < 700 else math.inf
            return Validation(loss, perplexity, self._bleu() if self._sources else None)

    def _distributed(self) -> tf.distribute.DistributedIterator:
        ids = tf.TensorSpec([None, None], tf.int32)

        def dataset(_: tf.distribute.InputContext) -> tf.data.Dataset:
            options = tf.data.Options()
            options.autotune.enabled = False
            return tf.data.Dataset.from_generator(
                lambda: (share for batch in self._batches for share in batch),
                output_signature={"source": ids, "target": ids},
            ).with_options(options)

        return iter(self._step.strategy.distribute_datasets_from_function(dataset))

    def _bleu(self) -> float:
        count = self._workers.count
        sources = self._sources[self._workers.index :: count]
        mine = [translation.text for translation in self._translator.translate(sources, scored=False)]
        hypotheses = [""] * len(self._sources)
        for index, share in enumerate(self._workers.gather(json.dumps(mine).encode())):
            hypotheses[index::count] = json.loads(share)
        return evaluation.bleu(hypotheses, self._references)
