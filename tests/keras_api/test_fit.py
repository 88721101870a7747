"""`fit` with Keras's callbacks and kinds of data, on the current backend."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

from tests.keras_api.promises import promise
from tests.keras_api.small_models import array, assert_equal, classifier, token_ids, transformer

SENTENCES, BATCH = 8, 4
SOURCE, TARGET = token_ids(SENTENCES, 6), token_ids(SENTENCES, 5)
ORDERED = {"batch_size": BATCH, "shuffle": False, "verbose": 0}


class Training(NamedTuple):
    """A model and its training examples.

    Attributes:
        make: returns the compiled model, always with the same initial weights.
        inputs: the inputs of the model by name.
        targets: its targets.
        expected: the weights after two epochs.
    """

    make: Callable[..., keras.Model]
    inputs: dict[str, np.ndarray]
    targets: np.ndarray
    expected: list[np.ndarray]

    def batches(self) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """Returns the batches of an epoch, unshuffled."""
        for start in range(0, SENTENCES, BATCH):
            rows = slice(start, start + BATCH)
            yield {name: each[rows] for name, each in self.inputs.items()}, self.targets[rows]


class Interruption(keras.callbacks.Callback):
    """Raises an error at the start of an epoch, like a lost machine."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if epoch == self.epoch:
            raise InterruptedError


class Batches(keras.utils.PyDataset):
    """The batches of a training as a dataset that a user's program defines."""

    def __init__(self, training: Training) -> None:
        super().__init__()
        self.examples = list(training.batches())

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return self.examples[index]


@pytest.fixture(scope="module", params=["layers", pytest.param("transformer", marks=pytest.mark.integration)])
def training(request) -> Training:
    """A functional model of layers without tracing, and the Transformer with tracing."""
    if request.param == "layers":
        make: Callable = functools.partial(classifier, run_eagerly=True)
        inputs, targets = {"tokens": SOURCE}, np.arange(SENTENCES) % 2
    else:
        make, inputs, targets = transformer, {"source": SOURCE, "target": TARGET}, TARGET
    model = make()
    losses = model.fit(inputs, targets, epochs=2, **ORDERED).history["loss"]
    assert losses[1] < losses[0]
    return Training(make, inputs, targets, list(map(array, model.weights)))


@pytest.fixture
def model(training) -> keras.Model:
    return training.make()


def fit(model: keras.Model, training: Training, **settings) -> dict[str, list[float]]:
    """Trains like the run of the expected weights, except for `settings`; returns the history."""
    data = (training.inputs, training.targets)
    return model.fit(*data, **{"epochs": 2, **ORDERED, **settings}).history


CALLBACKS = "callbacks `EarlyStopping`, `ModelCheckpoint`, `BackupAndRestore`, `LearningRateScheduler`, `TensorBoard`"


@promise(CALLBACKS)
def test_early_stopping_restores_the_best_weights(training, model):
    losses = {0: 3.0, 1: 2.0, 2: 2.5}
    worse = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(loss=losses[epoch]))
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=1, restore_best_weights=True)
    fit(model, training, epochs=9, callbacks=[worse, stop])
    assert stop.stopped_epoch == 2
    assert_equal(model.weights, training.expected, atol=1e-6)


@promise(CALLBACKS)
def test_model_checkpoints_are_loadable_models(training, model, tmp_path):
    best = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras", monitor="loss", save_best_only=True)
    weights = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True)
    fit(model, training, callbacks=[best, weights])
    loaded, fresh = keras.models.load_model(tmp_path / "2.keras"), training.make()
    fresh.optimizer.build(fresh.trainable_variables)
    fresh.load_weights(tmp_path / "2.weights.h5")
    for other in (loaded, fresh):
        assert_equal(other.weights, training.expected, atol=1e-6)
        assert_equal(other.optimizer.variables, model.optimizer.variables)


@promise(CALLBACKS)
def test_a_resumed_training_ends_with_the_weights_of_an_uninterrupted_one(training, tmp_path):
    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(InterruptedError):
        fit(training.make(), training, callbacks=[backup(), Interruption(epoch=1)])
    resumed = training.make()
    fit(resumed, training, callbacks=[backup()])
    assert_equal(resumed.weights, training.expected, atol=1e-6)
    assert int(array(resumed.optimizer.iterations)) == 2 * SENTENCES // BATCH


@promise(CALLBACKS)
def test_a_learning_rate_scheduler_sets_the_rate_of_each_epoch(training, model):
    weights = list(map(array, model.weights))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.0 if epoch else rate / 2)
    history = fit(model, training, callbacks=[schedule])
    assert history["learning_rate"] == pytest.approx([1.5e-3, 0.0])
    changes = [np.abs(array(after) - before).max() for after, before in zip(model.weights, weights, strict=True)]
    # Each of two updates by Adam changes a weight by at most the rate.
    assert 1.5e-3 < max(changes) <= 2 * 1.5e-3 * 1.01


@promise(CALLBACKS)
def test_tensorboard_gets_losses_and_histograms_of_all_weights(training, model, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_graph=False)
    fit(model, training, callbacks=[board])
    events = EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    assert len(events.Tensors("epoch_loss")) == 2
    histograms = [tag for tag in events.Tags()["tensors"] if tag.endswith("/histogram")]
    assert len(histograms) == len(model.weights)


@promise("generators, `PyDataset`, `tf.data`")
@pytest.mark.parametrize("kind", ["generator", "PyDataset", "tf.data"])
def test_every_kind_of_data_trains_like_arrays(training, model, kind):
    settings: dict[str, Any] = {"epochs": 2, "verbose": 0, "shuffle": False}
    if kind == "generator":
        data: Any = (batch for _ in range(2) for batch in training.batches())
        settings = {"epochs": 2, "verbose": 0, "steps_per_epoch": SENTENCES // BATCH}
    elif kind == "PyDataset":
        data = Batches(training)
    else:
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((training.inputs, training.targets)).batch(BATCH)
    model.fit(data, **settings)
    assert_equal(model.weights, training.expected, atol=1e-6)


@promise("`steps_per_execution`", torch="no")
@pytest.mark.integration
def test_several_steps_per_execution_train_like_single_ones(training):
    model = training.make(run_eagerly=False, steps_per_execution=2)
    fit(model, training)
    assert_equal(model.weights, training.expected, atol=1e-5)


@promise("`sample_weight` per sentence and per token, `class_weight`")
@pytest.mark.parametrize("per", ["sentence", "token"])
def test_sample_weights_multiply_the_losses_of_tokens(per):
    model, inputs = transformer(run_eagerly=True), {"source": SOURCE, "target": TARGET}
    weight = np.arange(SENTENCES, dtype="float32") % 3
    if per == "token":
        weight = np.where(np.arange(TARGET.shape[1]) < 2, weight[:, None], 0.5).astype("float32")
    loss = model.evaluate(inputs, TARGET, sample_weight=weight, batch_size=SENTENCES, verbose=0)
    logits = array(model(inputs))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -0.9 * np.take_along_axis(log_probs, TARGET[..., None], -1)[..., 0] - 0.1 * log_probs.mean(-1)
    losses *= (TARGET != 0) * (weight[:, None] if per == "sentence" else weight)
    assert loss == pytest.approx(losses.sum() / np.count_nonzero(TARGET), rel=1e-5)
    weights = list(map(array, model.weights))
    model.fit(inputs, TARGET, sample_weight=0 * weight, verbose=0)
    assert_equal(model.weights, weights)


@promise("`sample_weight` per sentence and per token, `class_weight`")
def test_class_weights_multiply_the_losses_of_a_classifier():
    model, labels = classifier(run_eagerly=True), np.arange(SENTENCES) % 2
    model.optimizer.learning_rate = 0.0
    one, other = (
        model.fit({"tokens": SOURCE}, labels, class_weight=weights, verbose=0).history["loss"][0]
        for weights in ({0: 1.0, 1: 0.0}, {0: 0.0, 1: 3.0})
    )
    logits = array(model({"tokens": SOURCE}))
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(SENTENCES), labels]
    assert one == pytest.approx(losses[0::2].sum() / SENTENCES, rel=1e-5)
    assert other == pytest.approx(3 * losses[1::2].sum() / SENTENCES, rel=1e-5)
