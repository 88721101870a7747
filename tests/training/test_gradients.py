"""Loss and gradients of rows: additions of the model to the loss, and requirements of the model."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import TrainConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.losses import PairTerms, loss_sum_and_count, pair_losses
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import frozen_names, weight_names
from t2t_keras.training import consistency
from t2t_keras.training.layout import MatrixLayout
from t2t_keras.training.objectives.stateless_model import StatelessModel
from t2t_keras.training.step import TrainingStep
from tests.training.tiny_families import TINY, tiny_family

SIZES: dict[str, Any] = {
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "d_model": 8,
    "d_ff": 8,
    "num_heads": 2,
    "dropout_rate": 0.0,
}
SOURCE = np.array([[5, 6, 1], [7, 1, 0], [8, 9, 1], [4, 1, 0]], np.int32)
TARGET = np.array([[3, 1, 0], [5, 6, 1], [1, 0, 0], [9, 8, 1]], np.int32)


def make(dtype: str = "float32"):
    """Returns a model whose layers add a loss for each target token, in their compute dtype."""
    keras.utils.set_random_seed(1)
    model: keras.Model = make_model(TransformerConfig(vocab_size=20, **SIZES))
    plain = model.states

    def states(inputs, **settings):
        model_states = plain(inputs, **settings)
        mask = tf.cast(inputs["target"] != 0, model_states.hidden.dtype)[..., tf.newaxis]
        return model_states._replace(auxiliary_loss=tf.cast(0.1 * tf.reduce_sum(model_states.hidden**2 * mask), dtype))

    model.states = states
    return model


def gradients_of(model, rows: slice, frozen: tuple[str, ...] = (), **settings: Any) -> list[np.ndarray]:
    training = TrainingStep(model, TrainConfig(frozen=frozen, **settings), tf.distribute.get_strategy())
    weights = map(tf.convert_to_tensor, training.weights)
    scale_seed_and_step = tf.constant(0.5), tf.constant([1, 2], tf.int32), tf.constant(0, tf.int64)
    (loss,), matrices = training.row_gradients(*weights, SOURCE[rows], TARGET[rows], *scale_seed_and_step)
    return [loss.numpy(), *(gradient.numpy() for gradient in training.layout.split(matrices))]


def test_an_auxiliary_loss_is_added_and_trained():
    model = make()
    results = gradients_of(model, slice(None))
    with tf.GradientTape() as tape:
        states = model.states({"source": SOURCE, "target": TARGET})
        loss = 0.5 * (loss_sum_and_count(TARGET, model.logits(states.hidden), 0.1)[0] + states.auxiliary_loss)
    variables = [variable.value for variable in model.trainable_variables]
    expected = [loss.numpy(), *map(tf.convert_to_tensor, tape.gradient(loss, variables))]
    assert float(states.auxiliary_loss) > 0.1
    for actual, expected_gradient in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, expected_gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["simcut", "rdrop"])
def test_a_second_prediction_is_added_and_trained(kind, monkeypatch):
    """Compares with the plain formula of two passes, of which the second has hidden tokens (here also with R-Drop)."""
    model = make()
    monkeypatch.setattr(consistency, "token_cutoff", lambda ids, *_: tf.where(ids % 4 == 1, -ids, ids))
    results = gradients_of(model, slice(None), consistency=kind, consistency_weight=2.0)
    hidden_source, hidden_target = (np.where(ids % 4 == 1, -ids, ids) for ids in (SOURCE, TARGET))
    with tf.GradientTape() as tape:
        one = model.states({"source": SOURCE, "target": TARGET})
        two = model.states({"source": hidden_source, "target": hidden_target})
        logits = model.logits(one.hidden), model.logits(two.hidden)
        token_losses = pair_losses(TARGET, logits, getattr(PairTerms, kind)(2.0), 0.1)
        auxiliary = (one.auxiliary_loss + two.auxiliary_loss) / 2
        loss = 0.5 * (tf.reduce_sum(token_losses * tf.cast(TARGET != 0, tf.float32)) + auxiliary)
    variables = [variable.value for variable in model.trainable_variables]
    expected = [loss.numpy(), *map(tf.convert_to_tensor, tape.gradient(loss, variables))]
    assert np.abs(logits[0] - logits[1]).max() > 0.1
    for actual, expected_gradient in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, expected_gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("frozen", [("encoder/*",), ("*embedding*", "decoder/*")])
def test_frozen_weights_have_no_gradient_and_others_are_unaffected(frozen):
    model = make()
    names, still = weight_names(model), frozen_names(weight_names(model), frozen)
    assert 0 < len(still) < len(names)
    (loss, *gradients), (same_loss, *fewer) = gradients_of(model, slice(None)), gradients_of(model, slice(None), frozen)
    assert loss == same_loss
    for name, gradient, remaining in zip(names, gradients, fewer, strict=True):
        np.testing.assert_allclose(remaining, 0 if name in still else gradient, rtol=1e-5, atol=1e-7)


def test_patterns_of_frozen_weights_are_checked():
    names = ["encoder/a", "decoder/b"]
    assert frozen_names(names, ("*/b", "decoder/*")) == ["decoder/b"]
    with pytest.raises(InputError, match="no weight has a name that matches 'Encoder.*names: encoder/a, decoder/b"):
        frozen_names(names, ("*/a", "Encoder/*"))
    with pytest.raises(InputError, match=r"train.frozen=\*a,\*b freezes all weights"):
        frozen_names(names, ("*a", "*b"))


@pytest.mark.quick("transformer")
@pytest.mark.parametrize("family", TINY)
def test_no_sum_depends_on_the_order_of_its_parts(family):
    """AddN of three or more inputs starts with one that no other operation needs at that moment, if there is one."""
    model = make_model(tiny_family(family))
    graph = TrainingStep(model, TrainConfig(), tf.distribute.get_strategy()).row_gradients.graph
    sums = [operation for operation in graph.get_operations() if operation.type == "AddN"]
    assert sums
    for operation in (operation for operation in sums if len(operation.inputs) > 2):
        for part in operation.inputs:
            while part.op.type in ("Reshape", "Sum"):  # can pass on their input without copying it
                assert len(part.consumers()) == 1, operation.name
                part = part.op.inputs[0]
            assert len(part.consumers()) == 1, operation.name
    within = [node for function in graph.as_graph_def().library.function for node in function.node_def]
    assert all(node.attr["N"].i <= 2 for node in within if node.op == "AddN")


@pytest.mark.integration
def test_parts_of_a_batch_add_up_with_an_auxiliary_loss():
    model = make()
    all_rows, *parts = (gradients_of(model, rows) for rows in (slice(None), slice(0, 1), slice(1, 4)))
    for total, *addends in zip(all_rows, *parts, strict=True):
        np.testing.assert_allclose(total, sum(addends), rtol=1e-4, atol=1e-5)


@pytest.mark.integration
def test_an_auxiliary_loss_may_be_of_the_compute_dtype():
    exact, rounded = (gradients_of(make(dtype), slice(None))[0] for dtype in ("float32", "bfloat16"))
    assert rounded.dtype == np.float32
    assert rounded == pytest.approx(exact, rel=0.2)


def test_a_head_with_a_computed_matrix_is_rejected():
    model = make()
    model.output_embedding.table = tf.constant(model.output_embedding.table.numpy())
    layout = MatrixLayout([variable.shape for variable in model.trainable_variables])
    with pytest.raises(ValueError, match=r"output_head\.table must be one of model\.trainable_variables"):
        StatelessModel(model, layout, skip_padding=True, for_cpu=True)
