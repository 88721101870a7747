"""Models of fairseq: artificial ones, compared with a NumPy reference."""

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.formats import fairseq
from tests.formats import foreign, torch_writer
from tests.formats.foreign import D_FF, D_MODEL, HEADS, LAYERS
from tests.formats.numpy_transformer import Network, parts_by_torch_names, relu, sines_then_cosines

SETTINGS = {
    "arch": "transformer",
    "source_lang": "en",
    "target_lang": "de",
    **{f"{stack}_embed_dim": D_MODEL for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_embed_dim": D_FF for stack in ("encoder", "decoder")},
    **{f"{stack}_attention_heads": HEADS for stack in ("encoder", "decoder")},
    **{f"{stack}_layers": LAYERS for stack in ("encoder", "decoder")},
    **{f"{stack}_normalize_before": False for stack in ("encoder", "decoder")},
    "dropout": 0.2,
}
WORDS = {
    "en": ["Two", "dogs", "in", "the", "s@@", "now"],
    "de": ["Ein", "Mann", "steht", "auf", "einer", "Lei@@", "ter"],
}
TEXT, TRANSLATION = "Two dogs in the s@@ now fall", "Ein Mann steht in Lei@@ ter"


def padded_rows(count: int) -> int:
    return -(-count // 8) * 8


def make_folder(
    folder, rng, is_pre_norm=False, has_joint_vocabulary=True, with_model=False, is_old=False, decoder_width=D_FF
):
    """Writes a model; returns its tensors by their current names, and the network."""
    words = {language: WORDS["en"] + WORDS["de"] if has_joint_vocabulary else WORDS[language] for language in WORDS}
    if with_model:
        words = {language: [*foreign.pieces("en")] for language in WORDS}
    folder.mkdir(exist_ok=True)
    for language, entries in words.items():
        lines = [f"{word} {100 - number}\n" for number, word in enumerate(entries)]
        (folder / f"dict.{language}.txt").write_text("".join(lines), encoding="utf-8")
    if with_model:
        (folder / "sentencepiece.bpe.model").write_bytes(foreign.unigram("en"))
    tensors = {}
    for stack, language in (("encoder", "en"), ("decoder", "de")):
        table = foreign.random_array(rng, padded_rows(4 + len(words[language])), D_MODEL)
        table[1] = 0
        if has_joint_vocabulary and tensors:
            table = tensors["encoder.embed_tokens.weight"]
        tensors[f"{stack}.embed_tokens.weight"] = table
        attentions = ["self_attn", "encoder_attn"] if stack == "decoder" else ["self_attn"]
        norms = [f"{stack}.layer_norm"] if is_pre_norm else []
        for layer in (f"{stack}.layers.{number}" for number in range(LAYERS)):
            parts = ("q", "k", "v", "out")
            linear = {f"{layer}.{name}.{part}_proj": (D_MODEL, D_MODEL) for name in attentions for part in parts}
            width = decoder_width if stack == "decoder" else D_FF
            linear |= {f"{layer}.fc1": (width, D_MODEL), f"{layer}.fc2": (D_MODEL, width)}
            for name, shape in linear.items():
                tensors[f"{name}.weight"] = foreign.random_array(rng, *shape)
                tensors[f"{name}.bias"] = foreign.random_array(rng, shape[0])
            norms += [*(f"{layer}.{name}_layer_norm" for name in attentions), f"{layer}.final_layer_norm"]
        for name in norms:
            tensors[f"{name}.weight"] = 1 + foreign.random_array(rng, D_MODEL)
            tensors[f"{name}.bias"] = foreign.random_array(rng, D_MODEL)
    output = "decoder.embed_out" if is_old else "decoder.output_projection.weight"
    tensors[output] = tensors["decoder.embed_tokens.weight"]
    settings = {**SETTINGS, **{f"{stack}_normalize_before": is_pre_norm for stack in ("encoder", "decoder")}}
    settings["decoder_ffn_embed_dim"] = decoder_width
    other_tensors = {
        "encoder.version": np.ones(1, np.float32),
        "decoder.embed_positions._float_tensor": np.ones(1, np.float32),
    }
    stored = {"model": (rename_to_2018(tensors) if is_old else tensors) | other_tensors}
    if is_old:
        stored["args"] = settings
    else:
        languages = {name: settings.pop(name) for name in ("source_lang", "target_lang")}
        stored |= {"args": None, "cfg": {"task": languages, "model": settings}}
    torch_writer.save(stored, folder / "model.pt", is_old)
    return tensors, make_network(tensors, is_pre_norm)


def rename_to_2018(tensors):
    """Returns the tensors with the names of 2018: joint query, key and value tensors, numbered normalisations."""
    old = {}
    for name, array in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            old[name.replace("q_proj.", "in_proj_")] = np.concatenate(parts)
        elif ".k_proj" not in name and ".v_proj" not in name:
            numbers = {"self_attn": 0, "encoder_attn": 1, "final": 2 if name.startswith("decoder") else 1}
            for norm, number in numbers.items():
                name = name.replace(f".{norm}_layer_norm.", f".layer_norms.{number}.")
            old[name] = array
    return old


def make_network(tensors, is_pre_norm) -> Network:
    """Returns the network that fairseq computes."""
    source, target = (tensors[f"{stack}.embed_tokens.weight"] * D_MODEL**0.5 for stack in ("encoder", "decoder"))
    return Network(
        **parts_by_torch_names(tensors),
        source=source,
        target=target,
        output=tensors["decoder.embed_tokens.weight"],
        bias=np.zeros(len(target)),
        positions=lambda positions: sines_then_cosines(positions + 2, D_MODEL, D_MODEL / 2 - 1),
        start=target[2],
        layers=LAYERS,
        heads=HEADS,
        epsilon=1e-5,
        activation=relu,
        is_pre_norm=is_pre_norm,
    )


def to_their_ids(ids: list[int]) -> list[int]:
    """Converts ids: fairseq has <s> <pad> </s> <unk> before the words, this project <pad> </s> <unk> <s>."""
    return [{0: 1, 1: 2, 2: 3, 3: 0}.get(number, number) for number in ids]


@pytest.mark.quick("post_norm", "narrower_decoder")
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"is_pre_norm": True, "has_joint_vocabulary": False},
        {"is_old": True},
        {"with_model": True},
        {"decoder_width": 5},
    ],
    ids=["post_norm", "pre_norm_two_vocabularies", "of_2018", "sentencepiece", "narrower_decoder"],
)
def test_logits_equal_the_reference(tmp_path, choices):
    _, network = make_folder(tmp_path / "model", np.random.default_rng(1), **choices)
    model = fairseq.read(tmp_path / "model")
    source, target = [*model.tokenizer.source.encode(TEXT), 1], [*model.tokenizer.encode(TRANSLATION), 1]
    actual = foreign.logits(model, source, target)
    columns = to_their_ids(range(actual.shape[1]))
    np.testing.assert_allclose(
        actual, network.logits(to_their_ids(source), to_their_ids(target))[:, columns], atol=2e-5
    )
    data = model.config.data
    assert (data.source_language, data.target_language, model.config.model.dropout_rate) == ("en", "de", 0.2)
    decode = model.config.decode  # as in `fairseq-generate`: 1, and 200 without the end symbol
    assert (decode.min_length, decode.max_length_factor, decode.max_length_offset) == (1, 0, 201)
    assert model.tokenizer.has_one_id_space == choices.get("has_joint_vocabulary", True)
    if "with_model" not in choices:
        assert "tokens separated by blanks" in model.notes[0]
        assert source[-3:] == [*model.tokenizer.source.encode("now"), 2, 1]
        assert model.tokenizer.decode(model.tokenizer.encode("Ein Mann Lei@@ ter")) == "Ein Mann Lei@@ ter"
        assert model.tokenizer.decode(model.tokenizer.encode("Zwei Mann")) != "Zwei Mann"


DAMAGES = {
    "none": (lambda folder: (folder / "model.pt").unlink(), r"must contain exactly one file \*.pt, but contains 0"),
    "dictionary": (
        lambda folder: (folder / "dict.de.txt").write_text("a"),
        "dict.de.txt, line 1: expected 'symbol",
    ),
    "tensor": (
        lambda folder: torch_writer.save({"model": {"a": 3}, "args": SETTINGS}, folder / "model.pt"),
        "model.pt: 'a' is not a tensor",
    ),
    "objects": (
        lambda folder: torch_writer.save({"model": {}, "args": None, "cfg": [SETTINGS]}, folder / "model.pt"),
        "model.pt: 'cfg' contains objects of a different package; save it as plain dicts and values",
    ),
    "objects_inside": (
        lambda folder: torch_writer.save({"model": {}, "cfg": {"model": [1]}}, folder / "model.pt"),
        "model.pt: 'cfg' contains objects of a different package",
    ),
    "no_settings": (lambda folder: torch_writer.save({"model": {}}, folder / "model.pt"), "neither 'args' nor 'cfg'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models_are_reported(tmp_path, damage):
    make_folder(tmp_path, np.random.default_rng(1))
    foreign.assert_error_names_damage(DAMAGES[damage], tmp_path, fairseq.read)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"layernorm_embedding": True}, "layernorm_embedding=True is not supported; supported: False"),
        ({"decoder_ffn_embed_dim": 3}, r"decoder.layers.0.fc1.weight must have shape \[12, 8\], got \[21, 8\]"),
        ({"dropout": None}, "model.pt: dropout must be a number, got None"),
        ({"encoder_langtok": "src"}, "encoder_langtok='src' is not supported; supported: None"),
        ({"decoder_langtok": True}, "decoder_langtok=True is not supported; supported: False"),
        ({"decoder_attention_heads": 1}, "encoder_attention_heads and decoder_attention_heads must be equal"),
        ({"activation_fn": "tanh"}, "activation_fn='tanh' is not supported"),
        ({"encoder_layers": 0}, "model.pt: model.num_encoder_layers must be a whole number of at least 1, got 0"),
        ({"encoder_layers": None}, "model.pt must define encoder_layers as a whole number; got None"),
        ({"decoder_normalize_before": 1}, "must define decoder_normalize_before as true or false; got 1"),
        ({"source_lang": None}, "does not name its languages"),
        ({"encoder_layers": 3}, "there is no tensor encoder.layers.2.self_attn.q_proj.weight"),
        ({"encoder_normalize_before": True, "decoder_normalize_before": True}, "no tensor encoder.layer_norm.weight"),
    ],
)
def test_unsupported_networks_are_rejected(tmp_path, settings, message):
    tensors, _ = make_folder(tmp_path, np.random.default_rng(1))
    torch_writer.save({"model": tensors, "args": {**SETTINGS, **settings}}, tmp_path / "model.pt")
    with pytest.raises(InputError, match=message):
        fairseq.read(tmp_path)


def test_positions_of_another_width_are_named(tmp_path):
    tensors, _ = make_folder(tmp_path, np.random.default_rng(1))
    tensors["decoder.embed_positions.weight"] = np.zeros([1026, 4], np.float32)
    torch_writer.save({"model": tensors, "args": SETTINGS}, tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"must have at least 1026 rows of 8, got \[1026, 4\]"):
        fairseq.read(tmp_path)
