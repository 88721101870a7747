"""Models of Marian: artificial ones, compared with a NumPy reference."""

import numpy as np
import pytest
import yaml

from t2t_keras.errors import InputError
from t2t_keras.formats import marian
from t2t_keras.symbols import UNK_ID
from tests.formats import foreign
from tests.formats.foreign import D_FF, D_MODEL, HEADS, LAYERS
from tests.formats.numpy_transformer import Network, relu, sines_then_cosines, swish

SETTINGS = {
    "type": "transformer",
    "dim-emb": D_MODEL,
    "enc-depth": LAYERS,
    "dec-depth": LAYERS,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": D_FF,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
NAMES = ["</s>", "<unk>", *dict.fromkeys([*foreign.pieces("en"), *foreign.pieces("de")])]
SIZE = len(NAMES)


def make_folder(folder, rng, untied=False, positions=False, **settings):
    """Writes a model; returns its tensors and the network."""
    settings = {**SETTINGS, **settings}
    tensors = {"decoder_ff_logit_out_b": foreign.random_array(rng, 1, SIZE)}
    for name in ("encoder_Wemb", "decoder_Wemb") if untied else ("Wemb",):
        tensors[name] = foreign.random_array(rng, SIZE, D_MODEL)
    if untied:
        tensors["decoder_ff_logit_out_W"] = foreign.random_array(rng, D_MODEL, SIZE)
    if positions:
        tensors["Wpos"] = foreign.random_array(rng, 40, D_MODEL)
    is_pre_norm = settings["transformer-preprocess"] == "n"
    suffix = "_pre" if is_pre_norm else ""
    for stack, attentions in (("encoder", ["self"]), ("decoder", ["self", "context"])):
        norms = [f"{stack}_top"] if is_pre_norm else []
        for layer in (f"{stack}_l{number}" for number in range(1, LAYERS + 1)):
            linear = {f"{layer}_{name}_{{}}{part}": (D_MODEL, D_MODEL) for name in attentions for part in "qkvo"}
            linear |= {f"{layer}_ffn_{{}}1": (D_MODEL, D_FF), f"{layer}_ffn_{{}}2": (D_FF, D_MODEL)}
            for name, shape in linear.items():
                tensors[name.format("W")] = foreign.random_array(rng, *shape)
                tensors[name.format("b")] = foreign.random_array(rng, 1, shape[1])
            norms += [*(f"{layer}_{name}_Wo" for name in attentions), f"{layer}_ffn_ffn"]
        for name in norms:
            end = "" if name.endswith("_top") else suffix
            tensors[f"{name}_ln_scale{end}"] = 1 + foreign.random_array(rng, 1, D_MODEL)
            tensors[f"{name}_ln_bias{end}"] = foreign.random_array(rng, 1, D_MODEL)
    folder.mkdir(exist_ok=True)
    stored = np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **tensors, **{"special:model.yml": stored})
    lines = [f"{quoted(name)}: {number}\n" for number, name in enumerate(NAMES)]
    (folder / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    (folder / "source.spm").write_bytes(foreign.unigram("en"))
    (folder / "target.spm").write_bytes(foreign.unigram("de"))
    return tensors, make_network(tensors, settings)


def quoted(name: str) -> str:
    """Quotes a key as yaml-cpp does, if it could be read as another type."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' if not name.strip("▁").isalpha() else name


def gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def make_network(tensors, settings) -> Network:
    """Returns the network that Marian computes."""
    is_pre_norm = settings["transformer-preprocess"] == "n"

    def linear(stack, number, part):
        kind, _, letter = part.partition("_")
        name = f"{stack}_l{number + 1}_" + {"self": "self_{}", "cross": "context_{}"}.get(kind, "ffn_{}") + letter
        name += {"inner": "1", "outer": "2"}.get(kind, "")
        return tensors[name.format("W")], tensors[name.format("b")][0]

    def norm(stack, number, kind):
        if kind == "final":
            return [tensors[f"{stack}_top_ln_{part}"][0] for part in ("scale", "bias")]
        name = {"self": "self_Wo", "cross": "context_Wo", "feed_forward": "ffn_ffn"}[kind]
        suffix = "_pre" if is_pre_norm else ""
        return [tensors[f"{stack}_l{number + 1}_{name}_ln_{part}{suffix}"][0] for part in ("scale", "bias")]

    shared = tensors.get("Wemb")
    source, target = (tensors.get(f"{stack}_Wemb", shared) for stack in ("encoder", "decoder"))
    output = tensors["decoder_ff_logit_out_W"].T if "decoder_ff_logit_out_W" in tensors else target
    learned = tensors.get("Wpos")
    scale = 1.0 if learned is not None else D_MODEL**0.5

    def positions(numbers):
        return sines_then_cosines(numbers, D_MODEL, D_MODEL / 2 - 1) if learned is None else learned[numbers]

    return Network(
        linear=linear,
        norm=norm,
        source=source * scale,
        target=target * scale,
        output=output,
        bias=tensors["decoder_ff_logit_out_b"][0],
        positions=positions,
        start=np.zeros(D_MODEL),
        layers=LAYERS,
        heads=HEADS,
        epsilon=1e-6,
        activation={"swish": swish, "relu": relu, "gelu": gelu}[settings["transformer-ffn-activation"]],
        is_pre_norm=is_pre_norm,
    )


def to_their_ids(ids: list[int]) -> list[int]:
    """Converts ids; Marian has no padding."""
    return [number - 1 for number in ids]


@pytest.mark.quick("post_norm")
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {**PRE, "transformer-ffn-activation": "relu", "untied": True},
        {"transformer-ffn-activation": "gelu", "positions": True},
    ],
    ids=["post_norm", "pre_norm_untied", "learned_positions"],
)
def test_logits_equal_the_reference(tmp_path, choices):
    _, network = make_folder(tmp_path / "model", np.random.default_rng(1), **choices)
    model = marian.read(tmp_path / "model")
    for text in foreign.TEXTS:
        source, target = [*model.tokenizer.source.encode(text), 1], [*model.tokenizer.encode(foreign.TEXTS[1]), 1]
        actual = foreign.logits(model, source, target)
        expected = network.logits(to_their_ids(source), to_their_ids(target))
        np.testing.assert_allclose(np.delete(actual, UNK_ID, 1)[:, 1:], np.delete(expected, UNK_ID - 1, 1), atol=5e-5)
        assert np.all(actual[:, [0, UNK_ID]] < -9e3)  # Marian predicts no padding, and never <unk>.


def test_search_settings_are_converted(tmp_path):
    make_folder(tmp_path, np.random.default_rng(1))
    (tmp_path / "vocab.yml").rename(tmp_path / "opus.vocab.yml")
    (tmp_path / "other.vocab.yml").write_text("nothing")
    search = {"vocabs": ["/there/opus.vocab.yml"] * 2, "beam-size": 6, "normalize": 1.0}
    (tmp_path / "model.npz.decoder.yml").write_text(yaml.safe_dump(search))
    decode = marian.read(tmp_path).config.decode
    assert (decode.beam_size, decode.length_normalization) == (6, "average")
    (tmp_path / "decoder.yml").write_text(yaml.safe_dump({**search, "normalize": 0.6}))
    model = marian.read(tmp_path, {"source_language": "fi", "target_language": "sv"})
    assert model.config.decode.length_penalty == 0.6 and "length^0.6" in model.notes[0]
    assert model.config.data.source_language == "fi" and model.knows_languages
    (tmp_path / "decoder.yml").write_text(yaml.safe_dump({**search, "skip-cost": True}))
    assert [note for note in marian.read(tmp_path).notes if note.startswith("skip-cost=True")]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a 1", "line 1: expected 'piece: id', got 'a 1'"),
        ("a: 0\nb: 2", "the ids must be 0 to 1, each once"),
        ('a: 0\n"\\UFFFFFFFF": 1', "line 2: .* names a character that does not exist"),
    ],
)
def test_a_damaged_vocabulary_is_rejected(tmp_path, text, message):
    (tmp_path / "vocab.yml").write_text(text)
    with pytest.raises(InputError, match=f"vocab.yml.*{message}"):
        marian.read_vocabulary(tmp_path / "vocab.yml")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg='rnn' is not supported"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth=3 is not supported; supported: 2"),
        ({"transformer-no-projection": True}, "transformer-no-projection=True is not supported"),
        ({"type": "s2s"}, "type='s2s' is not supported"),
        ({"right-left": True}, "right-left=True is not supported"),
        ({"transformer-ffn-activation": "tanh"}, "transformer-ffn-activation='tanh' is not supported"),
        ({"transformer-postprocess": "da"}, "-postprocess and -postprocess-top are '', 'da', ''; supported are"),
        ({"transformer-ffn-activation": None}, "must define transformer-ffn-activation as text; got None"),
        ({"dec-depth": "6"}, "model.npz, special:model.yml must define dec-depth as a whole number; got '6'"),
        ({"enc-depth": 0}, "model.npz, special:model.yml: model.num_encoder_layers must be .* at least 1, got 0"),
        ({"dim-emb": 10}, r"the embedding matrices must have 10 columns, got 8"),
        ({"dec-depth": 3}, "there is no tensor decoder_l3_self_Wq"),
        ({"enc-depth": 1}, "some tensors do not belong to a Transformer: encoder_l2_self_Wq"),
    ],
)
def test_unsupported_networks_are_rejected(tmp_path, settings, message):
    make_folder(tmp_path, np.random.default_rng(1))
    with np.load(tmp_path / "model.npz") as arrays:
        tensors = dict(arrays)
    text = yaml.safe_dump({**SETTINGS, **settings}).encode() + b"\0"
    np.savez(tmp_path / "model.npz", **{**tensors, "special:model.yml": np.frombuffer(text, np.int8)})
    with pytest.raises(InputError, match=message):
        marian.read(tmp_path)


DAMAGES = {
    "none": (lambda folder: (folder / "model.npz").unlink(), r"must contain exactly one file \*.npz, but contains 0"),
    "cut": (
        lambda folder: (folder / "model.npz").write_bytes(b"PK12"),
        "model.npz cannot be read as .npz: it is not an archive, or is truncated",
    ),
    "no_archive": (
        lambda folder: (folder / "model.npz").write_bytes(b"version https://git-lfs.github.com/spec/v1"),
        "model.npz cannot be read as .npz: it is not an archive, or is truncated",
    ),
    "no_model": (lambda folder: (folder / "source.spm").unlink(), "source.spm: cannot be read: No such file"),
    "two_of_one_id": (
        lambda folder: (folder / "vocab.yml").open("a").write(f"more: {SIZE - 1}\n"),
        f"vocab.yml, line {SIZE + 1}: the id {SIZE - 1} occurs twice",
    ),
    "beam": (
        lambda folder: (folder / "decoder.yml").write_text("vocabs: [vocab.yml]\nbeam-size: -1\n"),
        "decoder.yml: decode.beam_size must be a whole number of at least 1, got -1",
    ),
    "flat": (
        lambda folder: change_tensor(folder, "Wemb", np.zeros([3], np.float32)),
        r"the tensor Wemb must be a matrix, got \[3\]",
    ),
    "two_vocabularies": (
        lambda folder: (folder / "en.vocab.yml").write_text("</s>: 0\n"),
        "has en.vocab.yml, vocab.yml, but no decoder.yml assigns these vocabularies",
    ),
}


def change_tensor(folder, name, array):
    with np.load(folder / "model.npz") as arrays:
        tensors = {key: values for key, values in arrays.items() if key != name}
    np.savez(folder / "model.npz", **tensors, **({} if array is None else {name: array}))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models_are_reported(tmp_path, damage):
    make_folder(tmp_path, np.random.default_rng(1))
    foreign.assert_error_names_damage(DAMAGES[damage], tmp_path, marian.read)
