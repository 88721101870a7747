"""The program that exports a run's model."""

import json
import pathlib
import sys

import numpy as np
import pytest

sys.path += [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "decoding")]

import tiny
from drive import run_cases

from t2t_keras import run
from t2t_keras.decoding.translator import Translator
from t2t_keras.training import checkpoints


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with two checkpoints, the second of which has half the weights of the first."""
    folder = tmp_path_factory.mktemp("export")
    tiny.make_run(folder / "run")
    the_run = run.Run(folder / "run")
    first = checkpoints.load(checkpoints.resolve(the_run.checkpoints_path, "1"))
    halves = {name: weight / 2 for name, weight in first.weights.items()}
    checkpoints.save(the_run.checkpoints_path, 2, halves, {}, {})
    return folder


@pytest.fixture(scope="module")
def results(folder):
    base = [f"--model_dir={folder / 'run'}", f"--export_dir={folder / 'saved' / 'tiny'}"]
    cases = {
        "average": [*base, "--average_last=2", "--weights=bfloat16", "--beam_size=2", "--exclude=Hunde"],
        "too_many": [*base, "--average_last=3"],
        "both": [*base, "--average_last=2", "--checkpoint=1"],
        "no_checkpoint": [*base, "--checkpoint=77"],
        "ensemble": [*base, f"--ensemble={folder / 'run'}@1"],
        "no_run": [f"--model_dir={folder / 'nothing'}", base[1]],
        "beam": [*base, "--beam_size=1000"],
        "average_of_export": [f"--model_dir={folder / 'saved' / 'tiny'}", base[1], "--average_last=2"],
        "checkpoint_of_export": [f"--model_dir={folder / 'saved' / 'tiny'}", base[1], "--checkpoint=1"],
    }
    found = run_cases("launch.export", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, found, strict=True))


def test_it_exports(folder, results):
    status, output, error = results["average"]
    assert (status, error) == (0, "")
    version = folder / "saved" / "tiny" / "1"
    assert [path.name for path in version.parent.iterdir()] == ["1"]
    assert "weights of step_00000001, step_00000002: " in output
    assert "beam 2, length penalty 0.6" in output
    assert f"{version}: " in output
    document = json.loads((version / "assets.extra" / "config.json").read_text())
    names = ["step_00000001", "step_00000002"]
    expected = {"weights": "bfloat16", "excluded": ["Hunde"], "run": "run", "checkpoints": names}
    assert document["export"] == expected


def test_the_average_is_exported_in_bfloat16(folder, results):
    assert results["average"][0] == 0
    loaded = Translator.load(folder / "saved" / "tiny")
    weights = checkpoints.load(checkpoints.resolve(run.Run(folder / "run").checkpoints_path, "1")).weights
    names = run.weight_names(loaded.model)
    for name, found in zip(names, loaded.model.trainable_variables, strict=True):
        np.testing.assert_allclose(found.numpy(), 0.75 * weights[name], rtol=2**-8)
        assert not (found.numpy().view(np.uint32) & 0xFFFF).any(), "no more bits than bfloat16 has"
    assert loaded.excluded == ("Hunde",)


@pytest.mark.parametrize(
    "case, message",
    [
        ("too_many", "--average_last=3: {}/run/checkpoints has only 2 checkpoints"),
        ("both", "give either --checkpoint or --average_last, not both"),
        ("no_checkpoint", "no checkpoint '77' in {}/run/checkpoints; steps there: 1, 2; names there: none"),
        ("ensemble", "--ensemble: an ensemble cannot be exported; average checkpoints of one run instead"),
        ("no_run", "{}/nothing is not a run's directory: it has no config.json"),
        ("beam", "decode.beam_size=1000 is more than the vocabulary's 350 entries"),
        ("average_of_export", "--average_last: {}/saved/tiny is an exported model, it has no checkpoints to average"),
        ("checkpoint_of_export", "{}/saved/tiny is an exported model: it has no checkpoint '1' to choose"),
    ],
)
def test_errors_are_one_line(folder, results, case, message):
    assert results[case] == (1, "", f"error: {message.format(folder)}\n")


def test_other_programs_take_an_export(folder, results):
    assert results["average"][0] == 0
    text = "\n".join(tiny.SENTENCES).encode()
    model_dir = f"--model_dir={folder / 'saved' / 'tiny' / '1'}"
    (translated,) = run_cases("launch.translate", [([model_dir], text)])
    loaded = Translator.load(folder / "saved" / "tiny" / "1")
    assert translated == (0, "".join(f"{t.text}\n" for t in loaded.translate(tiny.SENTENCES)), "")
    (folder / "a.en").write_bytes(text)
    pairs = [f"--source={folder / 'a.en'}", f"--reference={folder / 'a.en'}"]
    no_place, no_data = run_cases("launch.evaluate", [([model_dir, *pairs], b""), ([model_dir, "--split=test"], b"")])
    message = (
        f"error: --model_dir={folder}/saved/tiny/1 is an exported model, which stays as it is: give --output_dir\n"
    )
    assert no_place == (1, "", message)
    assert no_data[0] == 1
    assert no_data[2].endswith("assets.extra/config.json does not say where the data was\n")
