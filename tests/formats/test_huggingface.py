"""Marian models of transformers: artificial ones, compared with a NumPy reference."""

import json
import re
import struct

import numpy as np
import pytest
import sentencepiece

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats import huggingface
from t2t_keras.formats.files.tensor_files import read_safetensors, write_safetensors
from t2t_keras.formats.huggingface_search import read_search
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from t2t_keras.text.tokenizer import Tokenizer, trained_tokenizer
from tests.formats import foreign, torch_writer
from tests.formats.foreign import D_MODEL, HEADS, LAYERS
from tests.formats.huggingface_folder import SETTINGS, make_folder, names, to_their_ids
from tests.formats.numpy_transformer import Network, parts_by_torch_names, sines_then_cosines, swish
from tests.inference import tiny


def make_network(tensors, scale=D_MODEL**0.5) -> Network:
    """Returns the network that transformers computes."""
    shared = tensors["model.shared.weight"].astype(np.float64)
    return Network(
        **parts_by_torch_names(tensors, "model."),
        source=shared * scale,
        target=shared * scale,
        output=shared,
        bias=tensors["final_logits_bias"][0],
        positions=lambda positions: sines_then_cosines(positions, D_MODEL, D_MODEL / 2),
        start=shared[-1] * scale,
        layers=LAYERS,
        heads=HEADS,
        epsilon=1e-5,
        activation=swish,
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "opus"


@pytest.mark.quick("trained on")
@pytest.mark.parametrize("padding", [0.0, 0.3], ids=["untouched", "trained on"])
def test_logits_equal_the_reference(folder, padding):
    tensors = make_folder(folder, np.random.default_rng(1))
    tensors["model.shared.weight"][-1] = padding * np.arange(D_MODEL)  # the first input of the decoder
    write_safetensors(folder / "model.safetensors", tensors)
    model = huggingface.read(folder)
    network, size = make_network(tensors), len(names())
    order = [*range(1, size), 0]  # their ids in the order of ours
    for text in foreign.TEXTS:
        source = [*model.tokenizer.source.encode(text), 1]
        target = [*model.tokenizer.encode(foreign.TEXTS[1]), 1]
        actual = foreign.logits(model, source, target)
        expected = network.logits(to_their_ids(source), to_their_ids(target))
        np.testing.assert_allclose(actual[:, order], expected, atol=2e-5)
        assert np.all(actual[:, size:] < -9e3)


def test_texts_are_split_into_the_same_pieces(folder):
    make_folder(folder, np.random.default_rng(1))
    tokenizer = huggingface.read(folder).tokenizer
    ids = {name: number for number, name in enumerate(names())}
    for side, language, texts in ((tokenizer.source, "en", foreign.ENGLISH), (tokenizer, "de", foreign.GERMAN)):
        processor = sentencepiece.SentencePieceProcessor(model_proto=foreign.unigram(language))
        # "E" and "c" only occur in the other language: they have an id, but this model has no such piece.
        for text in (*texts, "a 漢 b", "  two   words ", "E", "c", "\u00bd e", ""):
            expected = [ids.get(piece, 1) for piece in processor.encode(text, out_type=str)]
            assert to_their_ids(side.encode(text)) == expected
    text = foreign.TEXTS[0]
    assert to_their_ids(tokenizer.source.encode(f">>deu<< {text}")) == [
        ids[">>deu<<"],
        *to_their_ids(tokenizer.source.encode(text)),
    ]
    assert tokenizer.has_one_id_space and tokenizer.sizes["source_vocab_size"] is None
    for text in tiny.SENTENCES[3:]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_settings_are_converted(folder):
    make_folder(folder, np.random.default_rng(1), dropout=0.2)
    config = huggingface.read(folder).config
    assert (config.decode.beam_size, config.decode.length_normalization) == (6, "average")
    assert (config.data.source_language, config.data.target_language) == ("en", "de")
    model = config.model
    assert (model.dropout_rate, model.activation, model.norm_position, model.tie_embeddings) == (
        0.2,
        "swish",
        "post",
        True,
    )


def test_a_model_is_written_as_it_was_read(folder, tmp_path):
    tensors = make_folder(folder, np.random.default_rng(1))
    model = huggingface.read(folder)
    folder_written = tmp_path / "written"
    folder_written.mkdir()
    assert huggingface.write(model, folder_written) == ()
    tensors_written = read_safetensors(folder_written / "model.safetensors")
    assert tensors_written.keys() == tensors.keys()
    rows = [*range(len(names()) - 1), -1]  # The writer gave ids to pieces without one.
    for name, array in tensors.items():
        actual = tensors_written[name]
        if name == "model.shared.weight":
            actual = actual[rows]
        elif name == "final_logits_bias":
            actual = actual[:, rows]
        np.testing.assert_array_equal(actual, array)
    model_read = huggingface.read(folder_written)
    assert model_read.tokenizer.serialized == model.tokenizer.serialized
    assert model_read.tokenizer.source.serialized == model.tokenizer.source.serialized
    assert model_read.config == model.config
    assert all(np.array_equal(model_read.weights[name], array) for name, array in model.weights.items())


SHAPES = {
    "paper": {},
    "untied": {"tie_embeddings": False, "use_output_bias": True},
    "without_biases": {"use_attention_bias": False, "layer_norm_epsilon": 1e-5},
    "two_vocabularies": {"source_vocab_size": 300},
    "larger_source": {"source_vocab_size": 350},
}


@pytest.mark.quick("two_vocabularies")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_written_model_computes_the_same_when_it_is_read(tmp_path, shape):
    tokenizer = tiny.tokenizer()
    smaller = trained_tokenizer(tiny.SENTENCES[:3] * 2, 300)
    if shape == "two_vocabularies":
        tokenizer = Tokenizer(tokenizer.serialized, smaller)
    if shape == "larger_source":
        tokenizer = Tokenizer(smaller.serialized, tokenizer)
    network = Transformer(TransformerConfig(vocab_size=tokenizer.vocab_size, **{**tiny.MODEL, **SHAPES[shape]}))
    network.build()
    rng = np.random.default_rng(1)
    weights = {
        name: np.array(weight) + foreign.random_array(rng, *weight.shape)
        for name, weight in zip(weight_names(network), network.trainable_variables, strict=True)
    }
    data = DataConfig(source_language="fr", target_language="cs")
    decode = DecodeConfig(
        beam_size=3, length_normalization="none", ends_within_beam=True, no_repeat_ngram_size=3, min_length=1
    )
    model = PortableModel(Config(network.config, data, decode=decode), weights, tokenizer)
    notes = huggingface.write(model, tmp_path)
    assert len(notes) == (network.config.layer_norm_epsilon != 1e-5)
    model_read = huggingface.read(tmp_path)
    assert (model_read.config.decode, model_read.notes) == (model.config.decode, ())
    assert (model_read.config.data.source_language, model_read.config.data.target_language) == ("fr", "cs")
    assert model_read.config.model.tie_embeddings == network.config.tie_embeddings
    for text in tiny.SENTENCES:
        source, target = [*tokenizer.source.encode(text), 1], [*tokenizer.encode(text), 1]
        assert [*model_read.tokenizer.source.encode(text), 1] == source and [
            *model_read.tokenizer.encode(text),
            1,
        ] == target
        expected, actual = foreign.logits(model, source, target), foreign.logits(model_read, source, target)
        count = expected.shape[1]
        np.testing.assert_allclose(actual[:, 1:count], expected[:, 1:], atol=1e-3)
        assert np.all(actual[:, 0] < -9e3)  # No search can produce padding.
        assert np.all(actual[:, count:] < -9e3)  # These rows only pad the smaller matrix.
    tensors_written = read_safetensors(tmp_path / "model.safetensors")
    assert (
        len({len(array) for name, array in tensors_written.items() if "embed_tokens" in name or "shared" in name}) == 1
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"norm_position": "pre"}, "Marian of transformers does not support model.norm_position=pre"),
        ({"position_encoding": "learned"}, "does not support model.position_encoding=learned"),
        ({"num_experts": 4, "d_key": 3}, "does not support model.num_experts=4, model.d_key=3"),
        ({"attention_window": 2}, "does not support model.attention_window=2"),
    ],
)
def test_unsupported_models_are_rejected(tmp_path, changes, message):
    config = Config(TransformerConfig(vocab_size=350, **{**tiny.MODEL, **changes}))
    with pytest.raises(InputError, match=message):
        huggingface.write(PortableModel(config, {}, tiny.tokenizer()), tmp_path)
    assert not list(tmp_path.iterdir())


def change_json(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


EIGHT_BIT_FLOATS = b'{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}'
DAMAGES = {
    "no_config": (
        lambda folder: (folder / "config.json").unlink(),
        "^[^ ]*config.json: cannot be read: No such file or directory$",
    ),
    "another_model": (
        lambda folder: change_json(folder / "config.json", model_type="bart"),
        "model_type='bart' is not",
    ),
    "heads": (
        lambda folder: change_json(folder / "config.json", decoder_attention_heads=1),
        "encoder_attention_heads and decoder_attention_heads must be equal",
    ),
    "dropout": (
        lambda folder: change_json(folder / "config.json", dropout=None),
        "config.json: dropout must be a number, got None",
    ),
    "no_layers": (
        lambda folder: change_json(folder / "config.json", encoder_layers=0),
        "config.json: model.num_encoder_layers must be a whole number of at least 1, got 0",
    ),
    "beam": (
        lambda folder: change_json(folder / "config.json", num_beams=-1),
        "config.json: decode.beam_size must be a whole number of at least 1, got -1",
    ),
    "language": (
        lambda folder: change_json(folder / "tokenizer_config.json", source_lang=["en"]),
        "tokenizer_config.json: data.source_language must be text",
    ),
    "padding": (
        lambda folder: change_json(folder / "config.json", pad_token_id=-1),
        "config.json: pad_token_id=-1 is not one of the",
    ),
    "cut_vocabulary": (
        lambda folder: change_json(folder / "config.json", vocab_size=len(names()) + 64),
        f"vocab.json has {len(names())} entries for {len(names()) + 64} rows: it is truncated, or belongs to a",
    ),
    "huge_vocabulary": (
        lambda folder: change_json(folder / "config.json", vocab_size=10**12),
        f"vocab.json has {len(names())} entries for {10**12} rows: it is truncated, or belongs to a different model",
    ),
    "dtype": (
        lambda folder: (folder / "model.safetensors").write_bytes(
            struct.pack("<Q", len(EIGHT_BIT_FLOATS)) + EIGHT_BIT_FLOATS + bytes(4)
        ),
        "model.safetensors: the tensor a has the dtype F8_E4M3, which is not one of BF16, BOOL, ",
    ),
    "missing": (
        lambda folder: change_tensors(folder, "model.decoder.layers.1.fc1.bias", None),
        "model.safetensors: there is no tensor model.decoder.layers.1.fc1.bias",
    ),
    "vocabulary": (
        lambda folder: change_json(folder / "vocab.json", more=len(names())),
        rf"vocab.json: 'more' has the id {len(names())}, but there are {len(names())} rows",
    ),
    "two_of_one_id": (
        lambda folder: change_json(folder / "vocab.json", **{names()[-3]: 5}),
        rf"vocab.json: '{re.escape(names()[5])}' and '{re.escape(names()[-3])}' have the same id, 5$",
    ),
    "no_spm": (lambda folder: (folder / "target.spm").unlink(), "target.spm: cannot be read"),
    "no_weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "has no weights: none of model.safetensors, pytorch_model.bin",
    ),
}


def change_tensors(folder, name, array):
    tensors = read_safetensors(folder / "model.safetensors")
    tensors.pop(name, None)
    write_safetensors(folder / "model.safetensors", tensors | ({} if array is None else {name: np.float32(array)}))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models_are_reported(folder, damage):
    make_folder(folder, np.random.default_rng(1))
    foreign.assert_error_names_damage(DAMAGES[damage], folder, huggingface.read)


PAD = 99
NOT_CONVERTED = {
    "repetition_penalty": 1.2,
    "encoder_repetition_penalty": 1.1,
    "bad_words_ids": [[5, 6]],
    "forced_bos_token_id": 7,
    "forced_eos_token_id": 3,
    "early_stopping": True,
    "do_sample": True,
    "num_beam_groups": 2,
    "diversity_penalty": 0.5,
    "suppress_tokens": [3],
    "sequence_bias": [[[3], -1.0]],
    "exponential_decay_length_penalty": [5, 1.1],
    "renormalize_logits": True,
    "guidance_scale": 1.5,
    "max_time": 2.0,
    "stop_strings": ["stop"],
    "max_length": 513,
    "max_new_tokens": 1000,
    "num_return_sequences": 2,
    "eos_token_id": [0, 5],
    "decoder_start_token_id": 4,
    "setting_of_a_later_version": 1,
}


def read_notes(folder, **generation):
    """Returns the search settings and the notes of a model with this generation_config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_search(folder, {**SETTINGS, "pad_token_id": PAD, "decoder_start_token_id": PAD})


@pytest.mark.parametrize("name", NOT_CONVERTED)
def test_a_setting_that_is_not_converted_is_noted(folder, name):
    _, notes = read_notes(folder, **{name: NOT_CONVERTED[name]})
    assert notes == (f"settings of generation_config.json that are not converted: {name}={NOT_CONVERTED[name]}",)


def test_default_and_converted_settings_need_no_note(folder):
    defaults = {"bad_words_ids": [[PAD]], "forced_eos_token_id": 0, "eos_token_id": 0, "bos_token_id": 0}
    defaults |= {"pad_token_id": PAD, "decoder_start_token_id": PAD, "repetition_penalty": 1.0, "max_length": 512}
    defaults |= {"temperature": 1.5, "top_k": 50, "use_cache": True, "early_stopping": "never", "max_new_tokens": None}
    converted = {"num_beams": 3, "no_repeat_ngram_size": 2, "min_length": 4, "length_penalty": 0.0}
    decode = DecodeConfig(
        beam_size=3, no_repeat_ngram_size=2, min_length=3, length_normalization="none", ends_within_beam=True
    )
    assert read_notes(folder, **defaults, **converted, transformers_version="5.1") == (decode, ())
    assert read_notes(folder, length_penalty=None)[0].length_normalization == "average"  # the default there, 1.0
    for settings, limit in (({"max_length": 20}, 19), ({"max_length": 20, "max_new_tokens": 30}, 30)):
        decode, notes = read_notes(folder, **settings)
        assert (decode.max_length_factor, decode.max_length_offset, notes) == (0, limit, ())


@pytest.mark.parametrize("is_derived", [True, False])
def test_a_generation_config_replaces_the_search_settings_of_config_json(folder, is_derived):
    decode, _ = read_notes(folder, max_length=20, _from_model_config=is_derived)
    assert decode.beam_size == (SETTINGS["num_beams"] if is_derived else 1)


def split_into_shards(folder, suffix, count=3, with_index=True):
    """Divides the weights among files; returns the tensors."""
    tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, save = ("model", write_safetensors)
    if suffix == "bin":
        stem, save = "pytorch_model", lambda path, arrays: torch_writer.save(arrays, path)
    files = {}
    for number in range(count):
        name = f"{stem}-{number + 1:05}-of-{count:05}.{suffix}"
        part = dict(list(tensors.items())[number::count])
        save(folder / name, part)
        files |= dict.fromkeys(part, name)
    if with_index:
        index = {"metadata": {"total_size": 1}, "weight_map": files}
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    return tensors


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
@pytest.mark.parametrize("with_index", [True, False])
def test_sharded_weights_equal_those_of_one_file(folder, suffix, with_index):
    make_folder(folder, np.random.default_rng(1))
    expected = huggingface.read(folder)
    split_into_shards(folder, suffix, with_index=with_index)
    model = huggingface.read(folder)
    assert model.weights.keys() == expected.weights.keys()
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(model.weights[name], array)
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    (folder / f"{stem}-00002-of-00003.{suffix}").unlink()
    with pytest.raises(InputError, match=rf"{stem}-00002-of-00003\.{suffix} is missing: the weights are in 3 files"):
        huggingface.read(folder)
