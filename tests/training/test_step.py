"""A training step equals the plain formulas, and does not depend on how it is divided."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import losses
from t2t_keras.errors import InputError
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.devices.strategy import distributed, make_strategy
from t2t_keras.training.step import TrainingStep
from tests import programs
from tests.training.numpy_adam import NumpyAdam
from tests.training.trajectories import (
    MODEL,
    devices,
    dropout_seeds,
    make_batches,
    make_step,
    run_trajectory,
    trajectory,
)

HERE = pathlib.Path(__file__).parent
# Some changes must not affect the result; others affect it, but equally.
EVERYTHING = {"clip_norm": 0.5, "ema_decay": 0.9}
FEW = {"tokens_per_batch": 24}  # leaves some replicas without pairs
RISK = {**EVERYTHING, "objective": "risk", "risk_samples": 3, "likelihood_weight": 0.2, "learning_rate_scale": 0.3}

SIMCUT = {**EVERYTHING, **FEW, "consistency": "simcut", "learning_rate_scale": 0.3}


def one_replica() -> tf.distribute.Strategy:
    return make_strategy("cpu", 1)


@pytest.fixture(scope="module")
def plain_training() -> TrainingStep:
    """A traced step that has made updates."""
    return make_step({}, {}, devices(1))


@pytest.fixture(scope="module")
def plain(plain_training) -> dict[str, np.ndarray]:
    return run_trajectory(make_step({}, {}, devices(1)) if plain_training.num_updates else plain_training)


@pytest.fixture(scope="module")
def one_replica_with_everything() -> dict[str, np.ndarray]:
    return trajectory(train={**EVERYTHING, **FEW})


@pytest.fixture(scope="module")
def one_replica_with_risk() -> dict[str, np.ndarray]:
    return trajectory(steps=4, train=RISK)


@pytest.fixture(scope="module")
def one_replica_with_simcut() -> dict[str, np.ndarray]:
    return trajectory(steps=4, train=SIMCUT)


@pytest.fixture(scope="module")
def many_replicas(tmp_path_factory) -> dict[str, np.ndarray]:
    """The results of programs with logical devices."""
    folder = tmp_path_factory.mktemp("replicas")
    four, two = ({"replicas": replicas, "check_replicas": True} for replicas in (4, 2))
    by_strategy = {
        "orders": {"four": {**four, "train": {**EVERYTHING, **FEW, "steps_per_call": 5}}},
        "": {
            "two": {**two, "train": {**EVERYTHING, **FEW, "accumulation_steps": 2}},
            "risk": {**two, "train": RISK, "steps": 4},
            "simcut": {**two, "train": SIMCUT, "steps": 4},
        },
    }
    results: dict[str, np.ndarray] = {}
    for orders, cases in by_strategy.items():
        # There is one program per strategy, since TensorFlow keeps groups of collective operations for the whole
        # process.
        (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        command = [HERE / "trajectories.py", folder / "cases.json", folder / "results.npz", orders]
        root = str(HERE.parents[1])
        programs.run(command, check=True, env={**_environment(), "PYTHONPATH": root}, timeout=1200)
        results = {**np.load(folder / "results.npz"), **results}
    return results


def _environment() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Asserts that every array is within `tolerance` of the largest expected element."""
    assert actual.keys() == expected.keys()
    for name, expected_array in expected.items():
        # The softmax does not change if all keys change alike. The true gradient of their bias is therefore 0, Adam
        # makes full-sized steps from rounding errors, and no output depends on them.
        if "key_bias" in name:
            continue
        np.testing.assert_allclose(
            actual[name], expected_array, rtol=tolerance, atol=tolerance * np.abs(expected_array).max(), err_msg=name
        )


@pytest.mark.integration
@pytest.mark.parametrize("name", ["four", "two", "risk", "simcut"])
def test_many_replicas_equal_one(name, many_replicas, request):
    """With clipping and moving averages. Four take several steps per call, two accumulate, and two are for risk."""
    one = request.getfixturevalue(f"one_replica_with_{name if name in ('risk', 'simcut') else 'everything'}")
    many = {key.partition(":")[2]: array for key, array in many_replicas.items() if key.startswith(f"{name}:")}
    assert_same(many, one)


@pytest.mark.integration
def test_risk_does_not_depend_on_parts_and_streams(one_replica_with_risk, monkeypatch):
    """Parts and streams draw the same outputs of a sentence."""
    assert (one_replica_with_risk["sampled_gleu"] > 0).all()
    monkeypatch.setattr("t2t_keras.training.step.num_streams", lambda strategy: 1)
    assert_same(trajectory(steps=4, train={**RISK, "accumulation_steps": 3}), one_replica_with_risk)


@pytest.mark.integration
def test_simcut_does_not_depend_on_parts_and_streams(one_replica_with_simcut, monkeypatch):
    plain = trajectory(steps=4, train={**SIMCUT, "consistency": "none"})
    assert (one_replica_with_simcut["loss"] > plain["loss"]).all()  # by the divergence
    monkeypatch.setattr("t2t_keras.training.step.num_streams", lambda strategy: 1)
    assert_same(trajectory(steps=4, train={**SIMCUT, "accumulation_steps": 3}), one_replica_with_simcut)


@pytest.mark.integration
def test_elements_go_to_the_replicas_in_order(many_replicas):
    """The pipeline relies on this order: all shares of one batch, then all of the next."""
    np.testing.assert_array_equal(many_replicas["order"], np.arange(12).reshape(3, 4))


def test_accumulation_changes_nothing(plain, monkeypatch):
    """The network is traced once for all streams and parts."""
    states, calls = Transformer.states, []
    monkeypatch.setattr(
        Transformer, "states", lambda *args, **options: calls.append(options) or states(*args, **options)
    )
    training = make_step({"accumulation_steps": 3}, {}, devices(1))
    assert training._streams == 2
    assert_same(run_trajectory(training), plain)
    assert len(calls) == 1 and calls[0]["training"]


@pytest.mark.integration
def test_several_steps_a_call_change_nothing(plain):
    together = trajectory(train={"steps_per_call": 5})
    for name, array in plain.items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.integration
def test_compiled_equals_not_compiled():
    train = {"static_shapes": True}
    assert_same(trajectory(steps=2, train={**train, "jit_compile": True}), trajectory(steps=2, train=train))


@pytest.mark.integration
def test_accumulation_changes_nothing_with_experts():
    """The balance losses of experts are summed."""
    model = {"num_experts": 4, "experts_per_token": 2, "gate_noise": False, "balance_weight": 1.0}
    parts, expected = (trajectory(steps=3, model=model, train={"accumulation_steps": parts}) for parts in (3, 1))
    assert_same(parts, expected)


@pytest.mark.integration
def test_bfloat16_stays_near(plain):
    mixed = trajectory(train={"mixed_bfloat16": True})
    np.testing.assert_allclose(mixed["loss"], plain["loss"], rtol=0.05)
    assert np.abs(mixed["loss"] - plain["loss"]).max() > 1e-5  # It did compute in bfloat16.
    assert {array.dtype for array in mixed.values()} == {np.dtype(np.float32)}


@pytest.mark.quick("changes0")
@pytest.mark.parametrize("changes", [EVERYTHING, {"label_smoothing": 0.0, "learning_rate_scale": 3.0}])
def test_equals_the_formulas(changes):
    """Three steps against the model's logits, the plain loss, differentiation, the schedule and Adam in NumPy."""
    training = make_step(changes, {}, one_replica())
    config, model = training.config, training.model
    variables = model.trainable_variables
    weights = [variable.numpy() for variable in variables]
    adam, averages = NumpyAdam(weights), [array.astype(np.float64) for array in weights]
    expected = {"loss": [], "tokens": [], "learning_rate": [], "gradient_norm": []}
    batches = make_batches(config, one_replica())
    for step in range(1, 4):
        batch = next(batches)
        with tf.GradientTape() as tape:
            total, tokens = losses.loss_sum_and_count(batch["target"], model(batch), config.label_smoothing)
            loss = total / tokens
        gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients))
        if config.clip_norm:
            assert norm > config.clip_norm
            gradients = [g * config.clip_norm / norm for g in gradients]
        rate = config.learning_rate_scale * MODEL["d_model"] ** -0.5 * step * config.warmup_steps**-1.5
        adam.apply(gradients, rate, step)
        averages = [0.9 * a + 0.1 * w for a, w in zip(averages, adam.weights, strict=True)]
        for variable, array in zip(variables, adam.weights, strict=True):
            variable.assign(array)
        for name, value in zip(expected, (loss, tokens, rate, norm), strict=True):
            expected[name].append(float(value))
    names = training.names

    fresh = make_step(changes, {}, one_replica())
    metrics = fresh.run(make_batches(config, one_replica()), 3)._asdict()
    assert metrics.pop("measures") == {}
    state = fresh.read()
    assert_same(metrics, {name: np.array(values) for name, values in expected.items()})
    assert_same(state["weights"], dict(zip(names, adam.weights, strict=True)), 3e-5)
    assert_same(state["first_moments"], dict(zip(names, adam.first_moments, strict=True)), 3e-5)
    assert_same(state["second_moments"], dict(zip(names, adam.second_moments, strict=True)), 3e-5)
    if config.ema_decay:
        assert_same(state["ema"], dict(zip(names, averages, strict=True)), 3e-5)
    else:
        assert "ema" not in state


# Frozen weights are excluded after the objective has computed its gradients.
@pytest.mark.parametrize(
    "train",
    [pytest.param(EVERYTHING, id="likelihood"), pytest.param(RISK, id="risk", marks=pytest.mark.slow)],
)
def test_frozen_weights_do_not_change_and_others_do(train):
    training = make_step({**train, "frozen": ("encoder/*", "target_embedding/*")}, {}, one_replica())
    start = training.read()["weights"]
    training.run(make_batches(training.config, one_replica()), 2)
    moved = {name for name, weights in training.read()["weights"].items() if (weights != start[name]).any()}
    assert moved == {name for name in start if not name.startswith(("encoder/", "target_embedding/"))}


def test_a_restored_state_continues_bit_for_bit():
    train = {"ema_decay": 0.9}
    model = {"dropout_rate": 0.3}
    training = make_step(train, model, one_replica())
    training.run(make_batches(training.config, one_replica()), 3)
    state = training.read()
    training.run(make_batches(training.config, one_replica()), 2)
    expected = training.read()
    training.write(state, 3)  # Later steps must leave no trace.
    assert int(training.step) == 3
    training.run(make_batches(training.config, one_replica()), 2)
    for part, arrays in training.read().items():
        for name, array in expected[part].items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=f"{part}/{name}")
    assert int(training.step) == 5 and any((array != state["ema"][name]).any() for name, array in arrays.items())


def test_the_state_of_a_different_model_is_rejected(plain_training):
    training = plain_training
    state = training.read()
    name = training.names[0]
    state["second_moments"][name] = state["second_moments"][name].T
    with pytest.raises(InputError, match=rf"{name} has shape \(16, 50\), the model's \(50, 16\)"):
        training.write(state, 1)
    del state["second_moments"][name]
    with pytest.raises(InputError, match=f"second_moments of a different model; they differ in {name}"):
        training.write(state, 1)


@pytest.mark.quick("0.0-weights")
@pytest.mark.parametrize(("ema_decay", "part"), [(0.5, "ema"), (0.0, "weights")])
def test_the_model_gets_the_weights_of_a_moment(ema_decay, part, plain_training):
    training = make_step({"ema_decay": ema_decay}, {}, devices(1)) if ema_decay else plain_training
    variables = dict(zip(training.names, training.model.trainable_variables, strict=True))
    before = {name: variable.numpy() for name, variable in variables.items()}
    training.run(make_batches(training.config, one_replica()), 2)
    state = training.read()
    assert all((variables[name].numpy() == array).all() for name, array in before.items())  # not part of training
    training.fill_model()
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable.numpy(), state[part][name])
        np.testing.assert_array_equal(training.read()["weights"][name], state["weights"][name])
    assert any((state[part][name] != array).any() for name, array in before.items())
    assert part == "weights" or any((state["ema"][name] != array).any() for name, array in state["weights"].items())


def test_validation_loss_is_the_plain_cross_entropy():
    training = make_step({}, {"dropout_rate": 0.5}, one_replica())  # must not affect validation
    loss, tokens = training.validation_loss(make_batches(training.config, one_replica()), 4)
    batches = make_batches(training.config, one_replica())
    totals = np.zeros(2)
    for _ in range(4):
        batch = next(batches)
        totals += [float(x) for x in losses.loss_sum_and_count(batch["target"], training.model(batch))]
    assert tokens == totals[1]
    assert loss == pytest.approx(totals[0], rel=1e-5)


def test_dropout_seeds_differ_between_steps_parts_and_streams_and_repeat():
    train = {"accumulation_steps": 2}
    seeds = dropout_seeds(1, 3, train)
    assert seeds.shape == (3, 4, 2)
    assert len({tuple(seed) for seed in seeds.reshape(-1, 2)}) == 12
    as_sets = [{tuple(seed) for seed in step} for step in seeds]
    assert [{tuple(seed) for seed in step} for step in dropout_seeds(1, 3, train)] == as_sets
    other_seeds = dropout_seeds(1, 3, {**train, "seed": 2})
    assert not {tuple(seed) for seed in seeds.reshape(-1, 2)} & {tuple(seed) for seed in other_seeds.reshape(-1, 2)}


@pytest.mark.integration
def test_dropout_seeds_differ_between_replicas(many_replicas):
    seeds = many_replicas["seeds"]
    assert seeds.shape == (2, 4, 2)
    assert len({tuple(seed) for seed in seeds.reshape(-1, 2)}) == 8


@pytest.mark.quick("2-train1")
@pytest.mark.parametrize(("rows", "train"), [(1, {}), (2, {}), (1, {"jit_compile": True, "static_shapes": True})])
def test_streams_can_have_fewer_rows_or_none(rows, train, plain_training):
    training = make_step(train, {}, devices(1)) if train else plain_training
    training.fill_model()
    source = np.arange(rows * 4, dtype=np.int32).reshape(rows, 4) % 7 + 3
    batch = {"source": tf.constant(source), "target": tf.constant(source[:, ::-1].copy())}
    smoothing = training.config.label_smoothing
    expected, tokens = (float(x) for x in losses.loss_sum_and_count(batch["target"], training.model(batch), smoothing))
    dataset = tf.data.Dataset.from_tensors(batch).map(
        lambda b: {name: tf.ensure_shape(ids, [None, None]) for name, ids in b.items()}
    )
    metrics = training.run(distributed(one_replica(), dataset), 1)
    assert metrics.tokens[0] == tokens == rows * 4
    assert metrics.loss[0] == pytest.approx(expected / tokens, rel=1e-5)


@pytest.mark.integration
def test_dropout_changes_the_loss_and_a_rate_may_be_constant(plain):
    """`test_trainer.py` shows with interrupted trainings that it is reproducible bit for bit."""
    train = {"schedule": "constant", "learning_rate_scale": 0.01, "warmup_steps": 2}
    dropped = trajectory(steps=3, train=train, model={"dropout_rate": 0.3})
    assert dropped["loss"][0] != plain["loss"][0]
    np.testing.assert_allclose(dropped["learning_rate"], [0.005, 0.01, 0.01], rtol=1e-6)
