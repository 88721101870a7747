"""Separate vocabularies of sources and targets, from the text to an export."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401, the operations of exported tokenizers

from t2t_keras.config import Config, DataConfig, DecodeConfig, TrainConfig, TransformerConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.evaluation import target_cross_entropy
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.models.families import make_model
from t2t_keras.runs.run import Run, RunCheckpoint
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.trainer import Trainer
from tests.training.tiny_families import TINY, tiny_family
from tests.training.tiny_training import MODEL, TRAIN

pytestmark = pytest.mark.integration

PAIRS = [(f"жук номер {n}", f"beetle no. {n} of {n % 7}") for n in range(300)]
DATA = DataConfig(vocab_size=300, source_vocab_size=290, symbols=("<a>",), source_language="ru", target_language="en")
LINES = ["жук номер 5", "номер", "beetle", ""]


def prepare_data(folder, **more) -> PreparedData:
    corpus = Corpus({"train": lambda: iter(PAIRS)})
    return prepare(corpus, dataclasses.replace(DATA, **more.pop("config", {})), folder, lambda line: None, **more)


def trained(data: PreparedData, folder, init_from=None) -> list[str]:
    """Trains a run for some updates; returns which weights it took from another run."""
    model = TransformerConfig(**data.tokenizer.sizes, **MODEL)
    train = TrainConfig(**{**TRAIN, "max_steps": 20, "checkpoint_steps": 10, "tokens_per_batch": 400})
    config = Config(model=model, data=data.config, train=train, decode=DecodeConfig(beam_size=2, max_length_offset=4))
    trainer = Trainer(Run(folder), config, data, make_strategy("cpu"), init_from)
    trainer.train()
    return trainer.account


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    return prepare_data(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    trained(data, folder)
    return Run(folder)


@pytest.fixture(scope="module")
def version(run, translator, tmp_path_factory) -> pathlib.Path:
    return export_translator(translator, run.config, tmp_path_factory.mktemp("export") / "mine")


@pytest.fixture(scope="module")
def translator(run) -> Translator:
    return Translator.load(run.path)


@pytest.fixture(scope="module")
def translator_without_protection(translator) -> Translator:
    """Translates like the graph of an export, which reads characters that the training text does not contain."""
    settings = dataclasses.replace(translator.config, protect=("nothing",))
    return Translator(translator.tokenizer, translator.model, settings, translator.data)


def test_each_side_uses_a_separate_vocabulary(data):
    tokenizer = data.tokenizer
    assert tokenizer.sizes == {"vocab_size": 300, "source_vocab_size": 290}
    entries = [set(side.pieces(range(side.vocab_size))) for side in (tokenizer.source, tokenizer)]
    assert "▁номер" in entries[0] - entries[1] and "▁beetle" in entries[1] - entries[0]
    assert all("<a>" in side.symbols for side in (tokenizer.source, tokenizer))
    train = data.split("train")
    rows = np.arange(200)
    sources, targets = (
        tokenizer.source.decode_batch(train.source_ids(rows)),
        tokenizer.decode_batch(train.target_ids(rows)),
    )
    assert set(zip(sources, targets, strict=True)) < set(PAIRS)


def test_runs_store_both_vocabularies(data, run, translator):
    assert (run.path / "vocab.source.model").read_bytes() == data.tokenizer.source.serialized
    assert run.config.model.source_vocab_size == 290
    names = {weight.path.partition("/")[2]: weight.shape for weight in translator.model.trainable_variables}
    assert names["source_embedding/table"] == (290, 16) and names["target_embedding/table"] == (300, 16)


def test_scores_and_perplexity_use_both_vocabularies(translator):
    (best,) = translator.translate(LINES[:1])
    (forced,) = translator.score_tokens(best.source_ids, best.token_ids)
    assert forced.log_prob == pytest.approx(best.log_prob, rel=1e-4)
    (score,) = translator.score(LINES[:1], ["beetle"])
    assert score.pieces[0] == "▁beetle"
    assert target_cross_entropy(translator, [PAIRS[0][0]], [PAIRS[0][1]])[0] > 0


def test_engines_agree(run):
    pytest.importorskip("ctranslate2")
    config = dataclasses.replace(run.config.decode, beam_size=1)
    actual, expected = (
        [translation.token_ids for translation in Translator.load(run.path, settings=settings).translate(LINES)]
        for settings in (TranslatorSettings(config, engine="ctranslate2"), config)
    )
    assert actual == expected


def test_exports_translate_and_score_the_same(translator, translator_without_protection, version):
    signatures = tf.saved_model.load(str(version)).signatures
    actual = signatures["serving_default"](tf.constant(LINES))
    assert [text.decode() for text in actual["translation"].numpy()] == [
        t.text for t in translator_without_protection.translate(LINES)
    ]
    scored = signatures["score"](text=tf.constant(LINES[:2]), target=tf.constant(["beetle no. 5"] * 2))
    expected = [score.log_prob for score in translator.score(LINES[:2], ["beetle no. 5"] * 2)]
    np.testing.assert_allclose(scored["log_probability"].numpy(), expected, rtol=1e-4)
    aligned = signatures["align"](tf.constant(LINES[:1]))
    assert aligned["source_pieces"].numpy()[0, 0].decode() == "▁жук"
    loaded = Translator.load(version)
    assert [t.text for t in loaded.translate(LINES)] == [t.text for t in translator.translate(LINES)]
    assert sorted(path.name for path in (version / "assets").iterdir()) == [
        *("characters.json", "vocab.model", "vocab.source.model")
    ]


def test_extending_both_vocabularies_of_a_run(run, tmp_path):
    more = {"extend_vocab": 2, "symbols": ("<a>", "<b>")}
    pairs = [(f"<b> {source} щука", f"{target} pike") for source, target in PAIRS]
    corpus = Corpus({"train": lambda: iter(pairs)})
    config = dataclasses.replace(DATA, **more)
    data = prepare(corpus, config, tmp_path / "data", lambda line: None, vocab_from=run.vocab_path)
    assert data.tokenizer.sizes == {"vocab_size": 303, "source_vocab_size": 293}
    account = trained(data, tmp_path / "run", RunCheckpoint(run.path))
    assert account[2].endswith("target_embedding/table, source_embedding/table")


def test_shared_vocabularies_are_not_compatible(data, run, tmp_path):
    shared = prepare_data(tmp_path / "data", config={"source_vocab_size": 0, "vocab_size": 320})
    assert not (shared.directory / "vocab.source.model").exists()
    with pytest.raises(InputError, match="does not begin with the entries of"):
        trained(shared, tmp_path / "run", RunCheckpoint(run.path))
    for task in ("denoising", "tagging"):
        with pytest.raises(InputError, match=f"source_vocab_size: outputs of {task} contain words of the sources"):
            prepare_data(tmp_path / "other", config={"task": task})


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", TINY)
def test_every_family_has_source_embeddings(family, tied):
    changes = {"tie_embeddings": tied, **({"d_output": None} if family == "conv_s2s" else {})}
    config = tiny_family(family, source_vocab_size=70, **changes)
    model = make_model(config)
    assert sum(config.parameter_counts().values()) == sum(int(np.prod(w.shape)) for w in model.trainable_variables)
    assert model.source_embedding.vocab_size == 70 and model.target_embedding.vocab_size == 50
    states = model.states({"source": np.array([[69, 60, 1]]), "target": np.array([[49, 1]])})
    assert model.logits(states.hidden).shape == (1, 2, 50)
