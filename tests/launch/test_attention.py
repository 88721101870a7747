import pathlib

import pytest

from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.models.families import make_model
from tests.inference import tiny
from tests.programs import assert_error, run_cases
from tests.vocabularies import train_tokenizer

pytestmark = pytest.mark.integration

SOURCE, TARGET = "Two dogs play in the snow; one of them barks!", "Zwei Hunde spielen im Schnee."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attention")
    tiny.make_run(folder / "run")
    sizes = {"d_model": 8, "num_units": 8, "d_attention": 8, "num_encoder_layers": 2, "num_decoder_layers": 2}
    tiny.make_run(folder / "recurrent", make_model(RNNAttentionConfig(vocab_size=tiny.tokenizer().vocab_size, **sizes)))
    tiny.make_run(folder / "chinese")
    train_tokenizer([*tiny.SENTENCES, *["犬 猫"] * 20], 350, folder / "chinese" / "vocab.model")
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run = [f"--model_dir={folder / 'run'}", f"--source={SOURCE}"]
    pair = [*run, f"--target={TARGET}"]
    cross = [*pair, "--kind=cross"]
    one = f"--output={folder / 'one.svg'}"
    chinese = f"--model_dir={folder / 'chinese'}"
    cases = {
        "all": [*run, "--max_length_offset=3", f"--output={folder / 'all'}"],
        "query": [*pair, "--query=dogs", "--head=2", f"--output={folder / 'dogs.svg'}"],
        "recurrent": [f"--model_dir={folder / 'recurrent'}", *pair[1:], f"--output={folder / 'recurrent_pictures'}"],
        "chinese": [chinese, "--source=see http://犬 now", "--target=猫 犬", "--kind=cross", "--style=lines", one],
        "layer": [*cross, "--layer=3", one],
        "head": [*cross, "--head=1,3", one],
        "no_query": [*pair, "--query=cats", one],
        "query_in_maps": [*cross, "--query=dogs", "--style=maps", one],
        "several": [*cross, one],
        "format": [*cross, "--style=lines", "--format=png", one],
        "behind": [*run[:1], f"--source={'a ' * 90}dogs", f"--target={TARGET}", "--query=dogs", one],
        "no_encoder": [f"--model_dir={folder / 'recurrent'}", *pair[1:], "--kind=encoder", one],
        "blank": [run[0], "--source= ", one],
        "long": [run[0], f"--source={'Two dogs. ' * 100}", one],
    }
    outcomes = run_cases("launch.attention", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, outcomes, strict=True))


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_receives_every_kind_in_both_styles(results, folder):
    status, output, error = results["all"]
    assert (status, error) == (0, "")
    target, *paths = output.splitlines()
    assert target.startswith("target: ")
    expected = ["cross_lines_layer1.png", "cross_maps.png", "decoder_lines_layer1.png", "decoder_maps.png"]
    expected += ["encoder_lines_layer1.png", "encoder_maps.png"]
    assert names(folder / "all") == sorted(pathlib.Path(path).name for path in paths) == expected
    assert (folder / "all" / "cross_maps.png").read_bytes()[:4] == b"\x89PNG"


def test_lines_of_a_word(results, folder):
    """Only the source contains the word, so only the attention of the encoder is drawn."""
    assert results["query"] == (0, f"{folder / 'dogs.svg'}\n", "")
    text = (folder / "dogs.svg").read_text(encoding="utf-8")
    assert "encoder self-attention" in text and ">head 2</text>" in text and ">head 1</text>" not in text


def test_models_with_only_cross_attention(results, folder):
    status, output, _ = results["recurrent"]
    assert status == 0
    assert output.startswith("the model has no encoder self-attention and no decoder self-attention\n")
    assert names(folder / "recurrent_pictures") == ["cross_lines_layer1.png", "cross_maps.png"]


def test_characters_that_the_font_lacks_are_reported(results):
    status, _, error = results["chinese"]
    assert (status, error) == (0, "warning: the font lacks 犬 猫; .png files show boxes, .svg files show text\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layer", "--layer=3: cross-attention has layers 1 to 2"),
        ("head", "--head=3: cross-attention has heads 1 to 2, and mean"),
        ("no_query", "--query=cats is not a word of the sentence; its pieces: "),
        ("query_in_maps", "--query cannot be combined with --style=maps, only with lines"),
        ("several", "--output={}/one.svg is one file for 2 pictures (cross_maps, cross_lines_layer1); give a folder"),
        ("format", "--output={}/one.svg determines the format; --format requires a folder"),
        ("behind", "--query=dogs is not among the first 80 tokens, which pictures show"),
        ("no_encoder", "--kind=encoder: the model has no encoder self-attention; valid: cross"),
        ("blank", "--source is blank"),
        ("long", "--source is translated in "),
    ],
)
def test_errors(results, folder, name, message):
    assert_error(results[name], beginning=message.format(folder))
