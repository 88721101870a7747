"""A run that is initialised with the weights of another run."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

from t2t_keras.data.batching import Position
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run, RunCheckpoint
from t2t_keras.text.extension import spellings
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.trainer import Trainer
from tests.training import tiny_training
from tests.training.tiny_training import make_config, make_trainer, records, train


@pytest.fixture(scope="module")
def other_run(tmp_path_factory, data):
    """A run with two checkpoints, of which the second is better."""
    model_dir = tmp_path_factory.mktemp("other_run") / "run"
    train(model_dir, data, max_steps=8)
    assert checkpoints.best(Run(model_dir).checkpoints_path).step == 8
    return model_dir


def make_initialised_trainer(folder, data, init_from, model=None, **settings) -> Trainer:
    """Returns a trainer that has not been started."""
    return Trainer(Run(folder), make_config(data, model, **settings), data, make_strategy("cpu"), init_from)


def saved_weights(model_dir, name) -> dict[str, np.ndarray]:
    return checkpoints.load(checkpoints.resolve(Run(model_dir).checkpoints_path, name)).weights


def assert_same_weights(trainer, weights):
    actual = trainer.training.read()["weights"]
    assert actual.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


@pytest.mark.parametrize("chosen, step", [("4", 4), ("best", 8), (None, 8)])
def test_weights_are_those_of_the_checkpoint_and_all_else_is_new(tmp_path, data, other_run, chosen, step):
    trainer = make_initialised_trainer(tmp_path / "run", data, RunCheckpoint(other_run, chosen), seed=5, ema_decay=0.9)
    weights = saved_weights(other_run, str(step))
    assert_same_weights(trainer, weights)
    state = trainer.training.read()
    assert not any(array.any() for part in ("first_moments", "second_moments") for array in state[part].values())
    for name, array in weights.items():
        np.testing.assert_array_equal(state["ema"][name], array)
    assert (trainer.step, trainer.position) == (0, Position())
    path = Run(other_run).checkpoints_path / checkpoints.step_name(step)
    numbers = sum(array.size for array in weights.values())
    assert trainer.account == [
        f"starts from the weights of {path}",
        f"copied: {len(weights)} weights ({numbers:,} parameters)",
        "new: none",
        "not used: none",
    ]
    noted = Run(tmp_path / "run").init_from
    assert re.fullmatch("[0-9a-f]{8}", noted.pop("weights"))
    assert noted == {"model_dir": str(other_run), "checkpoint": chosen, "path": str(path)}


def test_a_run_cannot_resume_from_averages_only(tmp_path, data, other_run):
    shutil.copytree(other_run, tmp_path / "run")
    folder = Run(tmp_path / "run").checkpoints_path
    checkpoints.save_weights(folder, "averaged_last2", 8, saved_weights(other_run, "8"), {})
    for step in checkpoints.steps(folder):
        checkpoints.discard(folder, step)
    with pytest.raises(InputError, match="contains averages but no step to resume from: copy a step back"):
        make_initialised_trainer(tmp_path / "run", data, None)
    assert len(records(tmp_path / "run", "train")) > 0


def test_the_newest_average_is_the_default_and_moving_averages_are_taken(tmp_path, data, other_run):
    source = tmp_path / "source"
    shutil.copytree(other_run, source)
    folder = Run(source).checkpoints_path
    average = {name: array + 1 for name, array in saved_weights(other_run, "8").items()}
    checkpoints.save_weights(folder, "averaged_last2", 8, average, {})
    assert_same_weights(make_initialised_trainer(tmp_path / "run", data, RunCheckpoint(source)), average)
    moving = {name: array + 2 for name, array in average.items()}
    checkpoints.save(folder, 9, average, {}, {}, moving)
    assert_same_weights(make_initialised_trainer(tmp_path / "moving", data, RunCheckpoint(source)), moving)


def test_weights_of_only_one_run_are_new_or_unused(tmp_path, data, other_run):
    model = {"num_decoder_layers": 2, "use_attention_bias": False}
    fresh = make_trainer(tmp_path / "fresh", data, model).training.read()["weights"]
    trainer = make_initialised_trainer(tmp_path / "run", data, RunCheckpoint(other_run, "8"), model)
    weights, actual = saved_weights(other_run, "8"), trainer.training.read()["weights"]
    assert any(name.startswith("decoder/layer_1/") for name in actual.keys() - weights.keys())
    for name, array in actual.items():
        np.testing.assert_array_equal(array, weights.get(name, fresh[name]), err_msg=name)
    _, copied, new, unused = trainer.account
    assert copied.startswith(f"copied: {len(actual.keys() & weights.keys())} weights (")
    names = [name for name in actual if name not in weights]
    assert new.startswith(f"new: {len(names)} weights (") and new.endswith(f": {', '.join(names)}")
    names = [name for name in weights if name not in actual]
    assert unused.startswith(f"not used: {len(names)} weights (") and unused.endswith(f": {', '.join(names)}")


def test_different_shapes_are_rejected_by_name(tmp_path, data, other_run):
    with pytest.raises(InputError, match=r"different shapes cannot be copied: .*/inner_kernel \(16, 32\) -> \(16, 8\)"):
        make_initialised_trainer(tmp_path / "run", data, RunCheckpoint(other_run, "8"), {"d_ff": 8})


def test_new_entries_of_the_vocabulary_are_means_of_their_old_pieces(tmp_path, data, other_run):
    more = dataclasses.replace(data.config, symbols=("<more>",), extend_vocab=3)
    pairs = [(f"<more> {line} ба", line) for line in tiny_training.sentences(50)]
    text = Corpus({"train": lambda: iter(pairs)})
    extended = prepare(text, more, tmp_path / "extended", lambda line: None, vocab_from=data.vocab_path)
    trainer = make_initialised_trainer(tmp_path / "run", extended, RunCheckpoint(other_run, "8"))
    count, further = data.tokenizer.vocab_size, spellings(data.tokenizer, extended.tokenizer)
    assert extended.tokenizer.vocab_size == count + len(further) == count + 4
    weights, actual = saved_weights(other_run, "8"), trainer.training.read()["weights"]
    for name, array in weights.items():
        rows = [array[ids].mean(axis=0) for ids in further] if name == "target_embedding/table" else []
        np.testing.assert_array_equal(actual[name], np.concatenate([array, rows]) if rows else array, err_msg=name)
    assert trainer.account[2].startswith("4 new entries of the vocabulary, means of their pieces: ")


@pytest.mark.integration
def test_a_resumed_run_does_not_need_the_other(tmp_path, data, other_run):
    source = tmp_path / "source"
    shutil.copytree(other_run, source)
    init_from = RunCheckpoint(source, "4")
    make_initialised_trainer(tmp_path / "run", data, init_from, max_steps=3).train()
    noted = Run(tmp_path / "run").init_from
    source.rename(tmp_path / "gone")
    for again in (init_from, RunCheckpoint(tmp_path / "gone", "4"), None):
        trainer = make_initialised_trainer(tmp_path / "run", data, again, max_steps=3)
        assert trainer.account == []
        assert trainer.train() == (3, "had reached train.max_steps before", 0)
        assert_same_weights(trainer, saved_weights(tmp_path / "run", "3"))
        assert Run(tmp_path / "run").init_from == noted
    with pytest.raises(InputError, match=r"run began from .*step_00000004; omit --init_from, or use a different"):
        make_initialised_trainer(tmp_path / "run", data, RunCheckpoint(source), max_steps=3)
    with pytest.raises(InputError, match="run began with random weights; omit --init_from"):
        make_initialised_trainer(other_run, data, RunCheckpoint(tmp_path / "gone"), max_steps=8)
