"""Models of tensor2tensor: artificial ones, written by TensorFlow 1's saver, and compared with a NumPy reference."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.formats import tensor2tensor
from tests.formats import foreign
from tests.formats.foreign import D_FF, D_MODEL, HEADS, LAYERS
from tests.formats.numpy_transformer import Network, relu, sines_then_cosines

SETTINGS = {
    "hidden_size": D_MODEL,
    "filter_size": D_FF,
    "num_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
    "layer_prepostprocess_dropout": 0.2,
    "pos": "timing",
}
SUBWORDS = ["the_", "dog", "s_", "_", ", _", "Ein_", "Mann_"]
SUBWORDS += sorted(set("thedogs, EinMa.") - {"_"}) + list("\\u;0123456789")
SUBWORDS = list(dict.fromkeys(SUBWORDS))
PROBLEM = "translate_ende_wmt32k"
ROWS = -(-(2 + len(SUBWORDS)) // 16) * 16 + 2  # padded, as in tensor2tensor
TEXT, TRANSLATION = "the dogs, the 漢 dog.", "Ein Mann"


def make_folder(folder, rng, is_first_version=False, is_tied=True, as_flags=False, is_problems_own=True, **settings):
    """Writes a model; returns the network."""
    folder.mkdir()
    post_norm = {"layer_preprocess_sequence": "", "layer_postprocess_sequence": "dan"}
    settings = {**SETTINGS, **(post_norm if is_first_version else {}), **settings}
    body = "body/model/parallel_0/body" if is_first_version else "transformer/body"
    tensors = {}
    for stack, attentions in (("encoder", ["self"]), ("decoder", ["self", "encdec"])):
        norms = [] if is_first_version else [stack]
        for layer in (f"{stack}/layer_{number}" for number in range(LAYERS)):
            linear = {
                f"{layer}/{name}_attention/multihead_attention/{part}": (D_MODEL, D_MODEL)
                for name in attentions
                for part in ("q", "k", "v", "output_transform")
            }
            for name, shape in linear.items():
                tensors[f"{name}/kernel"] = foreign.random_array(rng, *shape)
                if is_first_version:
                    tensors[f"{name}/bias"] = foreign.random_array(rng, shape[1])
            for name, shape in ((f"{layer}/ffn/conv1", (D_MODEL, D_FF)), (f"{layer}/ffn/conv2", (D_FF, D_MODEL))):
                tensors[f"{name}/kernel"] = foreign.random_array(rng, *shape)
                tensors[f"{name}/bias"] = foreign.random_array(rng, shape[1])
            norms += [*(f"{layer}/{name}_attention" for name in attentions), f"{layer}/ffn"]
        for name in norms:
            place = f"{name}/layer_prepostprocess/layer_norm/layer_norm"
            tensors[f"{place}_scale"] = 1 + foreign.random_array(rng, D_MODEL)
            tensors[f"{place}_bias"] = foreign.random_array(rng, D_MODEL)
    matrices = {name: foreign.random_array(rng, ROWS, D_MODEL) for name in ("input_emb", "target_emb", "softmax")}
    if is_tied:
        matrices = {"shared": matrices["softmax"]}
    spaces = None if is_first_version else foreign.random_array(rng, 32, D_MODEL)
    stored = rename_to_first_version(tensors) if is_first_version else dict(tensors)
    if settings["layer_preprocess_sequence"] == "none":  # Later versions write such a model this way.
        scopes = "/layer_prepostprocess/", "/layer_postprocess/"
        stored = {name.replace(*scopes): array for name, array in stored.items()}
    stored = {f"{body}/{name}": array for name, array in stored.items()}
    for name, matrix in matrices.items():
        for number, shard in enumerate(np.array_split(matrix, 16)):
            stored[f"transformer/symbol_modality_{ROWS}_{D_MODEL}/{name}/weights_{number}"] = shard
    if spaces is not None:
        stored["transformer/body/target_space_embedding/kernel"] = spaces
    stored["training/transformer/body/Adam"] = np.zeros(3, np.float32)
    stored["global_step"] = np.int64(250000)
    if is_first_version:
        stored["losses_avg/problem_0/total_loss"] = np.float32(1)
        stored["train_stats/problem_0_steps"] = np.int32(1)
    save(stored, folder / "model.ckpt-250000")
    vocabulary = "".join(f"'{subword}'\n" for subword in ("<pad>_", "<EOS>_", *SUBWORDS))
    (folder / (f"vocab.{PROBLEM}.32768.subwords" if is_problems_own else "vocab.ende.32768")).write_text(vocabulary)
    if not is_problems_own:
        (folder / "flags.txt").write_text(f"--problems={PROBLEM}_rev\n")
    if as_flags:
        hparams = ",".join(f"{name}={value}" for name, value in settings.items())
        (folder / "flags.txt").write_text(f"--problem={PROBLEM}\n--hparams={hparams}\n--t2t_usr_dir=\n")
    else:
        (folder / "hparams.json").write_text(json.dumps(settings))
    is_later = "optimizer_adafactor_factored" in settings  # since 1.5.3, where all problems have the first row
    space = 0 if is_problems_own or is_later else 3  # the row of English tokens
    network = make_network(tensors, matrices, None if spaces is None else spaces[space], is_first_version)
    return dataclasses.replace(network, epsilon=settings.get("norm_epsilon", 1e-6))


def rename_to_first_version(tensors):
    """Returns the tensors of the first version: convolutions and fused projections."""
    old = {}
    for name, array in tensors.items():
        place, _, kind = name.rpartition("/")
        stem, _, part = place.rpartition("/")
        if part in ("k", "v") or (part == "q" and "encdec" in name):
            continue
        stored = {name: array}
        if part == "q":
            fused = np.concatenate([tensors[f"{stem}/{projection}/{kind}"] for projection in "qkv"], axis=-1)
            stored = {f"{stem}/qkv_transform_single/{kind}": fused}
        elif part in ("output_transform", "conv1", "conv2"):
            stored = {f"{place}_single/{kind}": array}
        for new_name, stored_array in stored.items():
            old[new_name] = stored_array[None, None] if kind == "kernel" else stored_array
    for name in tensors:
        if "encdec" in name and "/q/" in name:
            old[name.replace("/q/", "/q_transform_single/")] = four_dimensional(tensors[name])
            projections = [tensors[name.replace("/q/", f"/{part}/")] for part in "kv"]
            old[name.replace("/q/", "/kv_transform_single/")] = four_dimensional(np.concatenate(projections, axis=-1))
    return old


def four_dimensional(array):
    return array[None, None] if array.ndim == 2 else array


def save(tensors, path) -> None:
    """Saves the tensors as a program of TensorFlow 1 does."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name.replace("/", "_"), initializer=tensors[name]) for name in tensors
        }
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, str(path), write_meta_graph=False, write_state=False)


def make_network(tensors, matrices, space, is_first_version) -> Network:
    """Returns the network that tensor2tensor computes."""
    parts = {"inner": "ffn/conv1", "outer": "ffn/conv2"}
    for kind, name in (("self", "self"), ("cross", "encdec")):
        parts |= {f"{kind}_{part}": f"{name}_attention/multihead_attention/{part}" for part in "qkv"}
        parts[f"{kind}_o"] = f"{name}_attention/multihead_attention/output_transform"
    norms = {"self": "/self_attention", "cross": "/encdec_attention", "feed_forward": "/ffn", "final": ""}

    def linear(stack, number, part):
        name = f"{stack}/layer_{number}/{parts[part]}"
        return tensors[f"{name}/kernel"], tensors.get(f"{name}/bias", 0)

    def norm(stack, number, kind):
        layer = "" if number is None else f"/layer_{number}"
        place = f"{stack}{layer}{norms[kind]}/layer_prepostprocess/layer_norm/layer_norm"
        return tensors[f"{place}_scale"], tensors[f"{place}_bias"]

    shared = matrices.get("shared")
    source, target, output = (matrices.get(name, shared) for name in ("input_emb", "target_emb", "softmax"))
    return Network(
        linear=linear,
        norm=norm,
        source=source * D_MODEL**0.5 + (0 if space is None else space),
        target=target * D_MODEL**0.5,
        output=output,
        bias=np.zeros(ROWS),
        positions=lambda positions: sines_then_cosines(positions, D_MODEL, D_MODEL / 2 - 1),
        start=np.zeros(D_MODEL),
        layers=LAYERS,
        heads=HEADS,
        epsilon=1e-6,
        activation=relu,
        is_pre_norm=not is_first_version,
    )


def to_their_ids(ids: list[int]) -> list[int]:
    """Converts ids; tensor2tensor has no unknown token."""
    return [number - (number > 2) for number in ids]


@pytest.mark.quick("tied")
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"is_tied": False, "as_flags": True},
        {"is_first_version": True},
        {
            "is_first_version": True,
            "layer_preprocess_sequence": "none",
            "norm_epsilon": 0.01,
            "ffn_layer": "conv_hidden_relu",
        },
        {"is_problems_own": False},
        {"is_problems_own": False, "optimizer_adafactor_factored": True},
    ],
    ids=["tied", "untied", "first_version", "later_post_norm", "reversed_with_languages", "reversed_without_languages"],
)
def test_logits_equal_the_reference(tmp_path, choices):
    network = make_folder(tmp_path / "model", np.random.default_rng(1), **choices)
    model = tensor2tensor.read(tmp_path / "model")
    source, target = [*model.tokenizer.encode(TEXT), 1], [*model.tokenizer.encode(TRANSLATION), 1]
    actual = foreign.logits(model, source, target)
    expected = network.logits(to_their_ids(source), to_their_ids(target))
    np.testing.assert_allclose(np.delete(actual, 2, axis=1), expected, atol=2e-5)
    assert np.all(actual[:, 2] < -9e3)
    data = model.config.data
    languages = ("en", "de") if choices.get("is_problems_own", True) else ("de", "en")
    assert (data.source_language, data.target_language, model.config.model.dropout_rate) == (*languages, 0.2)
    assert [model.tokenizer.decode(ids) for ids in (source, target)] == [TEXT, TRANSLATION]


def change_settings(folder, **settings):
    (folder / "hparams.json").write_text(json.dumps({**SETTINGS, **settings}))


DAMAGES = {
    "none": (
        lambda folder: [path.unlink() for path in folder.glob("*.index")],
        r"must contain exactly one file \*.index, but contains 0",
    ),
    "no_settings": (lambda folder: (folder / "hparams.json").unlink(), "hparams.json: cannot be read"),
    "one_direction": (
        lambda folder: change_settings(folder, unidirectional_encoder=True),
        "unidirectional_encoder=True is not supported; supported: False",
    ),
    "half_a_layer": (
        lambda folder: change_settings(folder, num_encoder_layers=1.5),
        "must define num_encoder_layers as a whole number; got 1.5",
    ),
    "no_heads": (
        lambda folder: change_settings(folder, num_heads=0, attention_key_channels=4),
        "model: attention_key_channels=4 must be a multiple of num_heads=0",
    ),
    "dropout": (
        lambda folder: change_settings(folder, relu_dropout=2.0),
        r"model: model.relu_dropout_rate must be a number in \[0, 1\), got 2.0",
    ),
    "no_vocabulary": (
        lambda folder: [path.unlink() for path in folder.glob("vocab.*")],
        r"must contain exactly one file vocab.\*, but contains 0",
    ),
    "larger": (
        lambda folder: [path.write_text(path.read_text() + "'x'\n" * 30) for path in folder.glob("vocab.*")],
        f"vocab.{PROBLEM}.32768.subwords has .* entries, but there are {ROWS} rows",
    ),
    "no_problem": (
        lambda folder: [path.rename(folder / "vocab.x") for path in folder.glob("vocab.*")],
        "does not name its languages",
    ),
}


@pytest.fixture(scope="module")
def valid_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "model"
    make_folder(folder, np.random.default_rng(1))
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_models_are_reported(tmp_path, valid_folder, damage):
    shutil.copytree(valid_folder, tmp_path / "model")
    foreign.assert_error_names_damage(DAMAGES[damage], tmp_path / "model", tensor2tensor.read)
