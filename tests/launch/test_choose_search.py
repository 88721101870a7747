import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import corpora
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.inference import tiny
from tests.programs import assert_error, run_cases

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choose_search")
    run = Run(tiny.make_run(folder / "run", source_language="en", target_language="de"))
    (folder / "left").mkdir()
    weights = checkpoints.load(run.checkpoints_path / checkpoints.step_name(1)).weights
    checkpoints.save(run.checkpoints_path, 2, weights, {}, {})
    pairs = [(f"A man {word}", f"Ein Mann {word}") for word in ("runs", "barks", "plays", "jumps", "stands")]
    splits = {"train": pairs[2:], "valid": pairs[:2]}
    corpus = corpora.Corpus({name: lambda rows=rows: rows for name, rows in splits.items()})
    prepare(corpus, DataConfig(vocab_size=290), folder / "data", report=lambda line: None)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run = f"--model_dir={folder / 'run'}"
    cases = {
        "chosen": [run, "--averages=2", "--beam_sizes=1,3", "--length_penalties=1,average"],
        "no number": [run, "--beam_sizes=4,five"],
        "no beam": [run, "--beam_sizes="],
        "no penalty": [run, "--length_penalties=0.6,mean"],
        "too many": [run, "--averages=3"],
        "no data": [run, f"--data_dir={folder / 'left'}"],
        "no run": [f"--model_dir={folder / 'left'}"],
    }
    return dict(zip(cases, run_cases("launch.choose_search", [(case, b"") for case in cases.values()]), strict=True))


def test_table_and_choice(folder, results):
    """The scores of an untrained model are 0, so the run keeps its settings."""
    status, out, err = results["chosen"]
    assert (status, err) == (0, "")
    head, *rows, chosen, saved = out.splitlines()
    assert head.split() == ["weights", "beam", "length", "penalty", "BLEU", "seconds"]
    assert [row.split()[:3] for row in rows] == [
        ["step_00000002", "2", "0.6"],
        ["averaged_last2", "2", "0.6"],
        ["step_00000002", "1", "0.6"],
        ["step_00000002", "3", "1"],
        ["step_00000002", "3", "average"],
    ]
    assert chosen == (
        "chosen: step_00000002, beam_size=2, length_penalty=0.6, length_normalization=gnmt; 0.00 instead of 0.00"
    )
    assert saved == f"written: {folder / 'run' / 'config.json'}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no number", ["--beam_sizes must be a whole number of at least 1, got 'five'"]),
        ("no beam", ["--beam_sizes= names no value"]),
        ("no penalty", ["--length_penalties: 'mean' is neither a number nor average nor none"]),
        ("too many", ["--averages=3: ", "has only 2 checkpoints"]),
        ("no data", ["left: no prepared data here"]),
        ("no run", ["left", "config.json"]),
    ],
)
def test_errors(results, name, words):
    assert_error(results[name], *words)
