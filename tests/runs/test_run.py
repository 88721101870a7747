"""The directory of a run: its contents, and what it rejects."""

import dataclasses
import json

import numpy as np
import pytest

from t2t_keras.config import Config, TransformerConfig, override
from t2t_keras.errors import InputError
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import assign_weights, weight_names
from t2t_keras.runs import checkpoints
from t2t_keras.runs.load import load_model
from t2t_keras.runs.run import RESUMABLE, Run, scores_differ

CONFIG = Config(
    model=TransformerConfig(vocab_size=11, num_encoder_layers=1, num_decoder_layers=1, d_model=8, d_ff=12, num_heads=2)
)


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab"
    path.write_bytes(b"the vocabulary")
    return path


@pytest.fixture
def run(tmp_path, vocab):
    run = Run(tmp_path / "run")
    run.start(CONFIG, tmp_path / "data", vocab)
    return run


def test_a_run_keeps_its_configuration_vocabulary_and_data(run, tmp_path):
    assert run.exists
    assert run.config == CONFIG
    (tmp_path / "data").mkdir()
    assert run.data_dir == tmp_path / "data"
    assert run.vocab_path.read_bytes() == b"the vocabulary"
    assert {path.name for path in run.path.iterdir()} == {"config.json", "vocab.model"}


def test_a_different_configuration_is_rejected_with_the_differences(run, tmp_path, vocab):
    changed_config = override(CONFIG, ["model.d_ff=16", "train.seed=2", "train.max_steps=7"])
    with pytest.raises(InputError) as error:
        run.start(changed_config, tmp_path / "data", vocab)
    assert "model.d_ff: 12 -> 16; train.seed: 1 -> 2" in str(error.value)
    assert "max_steps" not in str(error.value)
    assert str(run.path) in str(error.value)
    assert "\n" not in str(error.value)
    assert run.config == CONFIG


@pytest.mark.parametrize("setting", sorted(RESUMABLE))
def test_resumable_settings_can_change(run, tmp_path, vocab, setting):
    section, _, name = setting.partition(".")
    new = override(CONFIG, [f"{setting}={getattr(getattr(CONFIG, section), name) + 1}"])
    assert new != CONFIG
    run.start(new, tmp_path / "data", vocab)
    assert run.config == new


@pytest.mark.parametrize("setting", ["decode.beam_size=5", "decode.sampling=true", "decode.bfloat16=true"])
def test_search_settings_can_change(run, tmp_path, vocab, setting):
    new = override(CONFIG, [setting])
    run.start(new, tmp_path / "data", vocab)
    assert run.config == new


def test_a_different_vocabulary_is_rejected(run, tmp_path, vocab):
    vocab.write_bytes(b"another one")
    with pytest.raises(InputError, match="a different vocabulary"):
        run.start(CONFIG, tmp_path / "data", vocab)
    assert run.vocab_path.read_bytes() == b"the vocabulary"


def test_a_different_training_text_is_rejected(run, tmp_path, vocab):
    run.start(CONFIG, tmp_path / "data", vocab, text="2 pairs (a, b)")  # adds the missing record
    run.start(CONFIG, tmp_path / "data", vocab)
    with pytest.raises(InputError) as error:
        run.start(CONFIG, tmp_path / "other", vocab, text="3 pairs (c, d)")
    folders = f"{tmp_path}/data with 2 pairs (a, b), but {tmp_path}/other has 3 pairs (c, d)"
    assert str(error.value).startswith(f"{run.path} was trained on {folders}; ")
    # Earlier versions only recorded lengths.
    run.start(CONFIG, tmp_path / "moved", vocab, text="2 pairs (a, b), text c")
    with pytest.raises(InputError, match=r"moved: the data that .* was trained on are missing; give --data_dir"):
        _ = run.data_dir
    (tmp_path / "moved").mkdir()
    assert run.config == CONFIG and run.data_dir == tmp_path / "moved"
    with pytest.raises(InputError, match=r"has 2 pairs \(a, b\), text d; use a different --model_dir"):
        run.start(CONFIG, tmp_path / "moved", vocab, text="2 pairs (a, b), text d")


def test_a_folder_without_a_run_is_an_error(tmp_path):
    assert not Run(tmp_path).exists
    with pytest.raises(InputError, match="is not a run's directory: it has no config.json"):
        _ = Run(tmp_path).config
    with pytest.raises(InputError, match="is not a run's directory"):
        load_model(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=f"but contains one: give {tmp_path}/run$"):
        _ = Run(tmp_path).config


@pytest.mark.parametrize("content", ["{", "", '{"model": {"depth": 3}}', "[]", '{"model": 3}', "\xff"])
def test_a_damaged_configuration_is_an_error(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError):
        _ = Run(tmp_path).config


def test_load_model_returns_the_trained_weights(run):
    model = Transformer(CONFIG.model)
    model.build()
    weights = {
        name: np.asarray(weight.value) + 0.5
        for name, weight in zip(weight_names(model), model.trainable_variables, strict=True)
    }
    checkpoints.save_weights(run.checkpoints_path, "averaged_test", 3, weights, {})
    loaded, config, vocab_path = load_model(run.path)
    assert (config, vocab_path) == (CONFIG, run.vocab_path)
    for name, weight in zip(weight_names(loaded), loaded.trainable_variables, strict=True):
        np.testing.assert_array_equal(weight.value, weights[name])


@pytest.mark.parametrize("change", [{"num_encoder_layers": 2}, {"d_ff": 16}])
def test_weights_of_a_different_model_are_rejected_by_name(change):
    models = [Transformer(CONFIG.model), Transformer(dataclasses.replace(CONFIG.model, **change))]
    for model in models:
        model.build()
    weights = {
        name: np.asarray(weight.value)
        for name, weight in zip(weight_names(models[1]), models[1].trainable_variables, strict=True)
    }
    with pytest.raises(InputError, match="encoder/layer_"):
        assign_weights(models[0], weights)


def test_only_leftovers_are_removed(tmp_path):
    leftovers = (".metrics.jsonl.77.tmp", ".config.json.77.tmp", ".vocab.source.model.77.tmp")
    for name in (*leftovers, ".lock", "metrics.jsonl", "mine.tmp", ".mine.tmp"):
        (tmp_path / name).write_text("")
    Run(tmp_path).remove_leftovers()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", ".mine.tmp", "metrics.jsonl", "mine.tmp"]


def contents(folder) -> dict[str, bytes]:
    """Returns the contents of all files in a directory."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_export(folder) -> None:
    """Writes the files that identify an exported model, as version 1."""
    extra = folder / "1" / "assets.extra"
    extra.mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"a graph")
    (extra / "config.json").write_text(json.dumps({**CONFIG.to_dict(), "export": {"excluded": []}}), encoding="utf-8")


@pytest.mark.parametrize("place", ["", "1", "1/assets.extra"])
def test_an_export_cannot_be_trained_and_is_not_changed(tmp_path, vocab, place):
    make_export(tmp_path / "export")
    before = contents(tmp_path / "export")
    run = Run(tmp_path / "export" / place)
    for call in (run.check_trainable, run.forget, lambda: run.start(CONFIG, tmp_path, vocab)):
        with pytest.raises(InputError, match="--model_dir"):
            call()
    assert contents(tmp_path / "export") == before


@pytest.mark.parametrize("content", ["{}", '{"name": "somebody else\'s"}', '{"data_dir": "data", "lr": 1}', "[]", "{"])
def test_a_foreign_configuration_is_not_overwritten(tmp_path, vocab, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(content, encoding="utf-8")
    run = Run(tmp_path / "run")
    for call in (run.check_trainable, run.forget, lambda: run.start(CONFIG, tmp_path, vocab)):
        with pytest.raises(InputError, match=r"run.config\.json"):
            call()
    assert contents(tmp_path / "run") == {"config.json": content.encode()}


def test_a_vocabulary_without_a_run_is_not_replaced(tmp_path, vocab):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vocab.model").write_bytes(b"somebody's")
    with pytest.raises(InputError, match=r"vocab.model exists without a run.*--model_dir"):
        Run(tmp_path / "run").start(CONFIG, tmp_path, vocab)
    assert contents(tmp_path / "run") == {"vocab.model": b"somebody's"}


def test_a_forgotten_run_can_start_with_any_configuration(run, tmp_path, vocab):
    vocab.write_bytes(b"another one")
    run.forget()
    assert contents(run.path) == {}
    run.start(override(CONFIG, ["train.seed=2"]), tmp_path, vocab)
    assert run.config.train.seed == 2
    assert run.vocab_path.read_bytes() == b"another one"


def test_settings_that_change_validation_scores():
    settings = {"train.validation_sentences=9": True, "decode.beam_size=2": True, "train.max_steps=9": False}
    for setting, differs in settings.items():
        assert scores_differ(CONFIG, override(CONFIG, [setting])) is differs


def test_a_run_without_a_record_of_characters_gets_one(run, tmp_path, vocab):
    record = vocab.with_name("characters.json")
    record.write_text('{"source": "a", "target": "b"}')
    run.start(CONFIG, tmp_path / "data", vocab)
    assert (run.path / "characters.json").read_bytes() == record.read_bytes()
    record.unlink()
    run.start(CONFIG, tmp_path / "data", vocab)
    assert (run.path / "characters.json").exists()


def test_a_model_of_transformers_is_referred_to_the_converter(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "marian", "architectures": ["MarianMTModel"]}')
    for access in (lambda run: run.config, lambda run: run.data_dir, Run.check_trainable):
        with pytest.raises(InputError, match=r"config\.json belongs to a model of transformers, .*launch\.convert"):
            access(Run(tmp_path))
