"""Every task from its files to a served model, with the programs."""

import pathlib
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401, the operations of exported tokenizers

from t2t_keras.config import DecodeConfig
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.signatures import signatures
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import TASKS, task
from tests import programs
from tests.programs import run_cases
from tests.tasks.examples import EXAMPLES

pytestmark = pytest.mark.integration

MODEL = ["num_encoder_layers=1", "num_decoder_layers=1", "d_model=16", "d_ff=32", "num_heads=2", "dropout_rate=0"]
TRAIN = ["max_steps=40", "checkpoint_steps=20", "tokens_per_batch=400", "warmup_steps=20", "validation_sentences=4"]
SETTINGS = [*(f"--set=model.{each}" for each in MODEL), *(f"--set=train.{each}" for each in TRAIN)]


MAX_LENGTHS = {"question_answering": 40, "parsing": 512, "classification": 24}
ROUGH = {
    "question_answering": [
        "cats of bo? <context>  bo has 3 cats." + " ana has 4 cats." * 9,
        "eve? <context> bo has 3.",
        "",
    ],
    "denoising": ["ana <mask> bo", "<mask>\tRom", ""],
    "summarisation": ["ana sees bo Rom", "near\tbo", ""],
    "parsing": ["the dog sees the cat .", "( the ) bites", ""],
    "classification": ["a good film", "something  else\there" + " with people in it." * 9, ""],
    "tagging": ["Ana sees Bo Ito", "  x  \t y", ""],
}


def write_split(name: str, folder: pathlib.Path, split: str, lines: Sequence[str]) -> None:
    """Writes a file of examples, or sources and references for tasks with two files."""
    if task(name).is_parallel:
        sources, lines = zip(*(line.split("\t") for line in lines), strict=True)
        (folder / f"{split}.source").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (folder / split).write_text("\n".join(lines) + "\n", encoding="utf-8")


def file_flags(name: str, folder: pathlib.Path, split: str, start: str, reference: str = "target") -> list[str]:
    """Returns the flags for the files of a split, whose names begin with `start`."""
    if task(name).is_parallel:
        return [f"--{start}source={folder / split}.source", f"--{start}{reference}={folder / split}"]
    return [f"--{start}source={folder / split}"]


class Folders(dict[str, pathlib.Path]):
    """The directory of the files, data and run of each task, created by the programs on first access.

    Without a validation set, the programs draw one.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root

    def __missing__(self, name: str) -> pathlib.Path:
        folder, rng = self._root / name, random.Random(1)
        folder.mkdir()
        for split, count in (("train", 300), ("test", 12)):
            write_split(name, folder, split, EXAMPLES[name](rng, count))
        files = [flag for split in ("train", "test") for flag in file_flags(name, folder, split, f"{split}_")]
        data_dir, model_dir = f"--data_dir={folder / 'data'}", f"--model_dir={folder / 'run'}"
        sizes = ["--vocab_size=320", f"--max_length={MAX_LENGTHS.get(name, 256)}"]
        done = [
            *run_cases("launch.prepare_data", [([f"--task={name}", *files, data_dir, *sizes], b"")]),
            *run_cases("launch.train", [([data_dir, model_dir, "--preset=tiny", *SETTINGS], b"")]),
        ]
        assert [status for status, *_ in done] == [0, 0], done
        self[name] = folder
        return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Folders:
    return Folders(tmp_path_factory.mktemp("tasks"))


# The outputs of the other tasks are text, like those of translation.
@pytest.fixture(
    scope="module",
    params=[
        "question_answering",
        "parsing",
        "classification",
        "tagging",
        pytest.param("summarisation", marks=pytest.mark.slow),
        pytest.param("denoising", marks=pytest.mark.slow),
    ],
)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def evaluated(name, folder) -> list[tuple[int, str, str]]:
    """Returns the split, the file from which it was made, outputs in a file, references and mistakes of a task."""
    run, test = f"--model_dir={folder / 'run'}", folder / "test"
    hypotheses = folder / "run" / "evaluation" / "test" / "hypotheses.txt"
    files = [f"--task={name}", f"--hypotheses={hypotheses}", f"--references={test}"]
    itself = [f"--task={name}", f"--hypotheses={test}", f"--references={test}"]
    own_file = [run, *file_flags(name, folder, "test", "", "reference"), f"--output_dir={folder / 'other'}"]
    cases = [[run, "--split=test"], own_file, files, itself, files[1:], [*files, run]]
    return run_cases("launch.evaluate", [(case, b"") for case in cases])


def of_graphs(*names: str) -> pytest.MarkDecorator:
    """Selects tasks; all others are slow."""
    cases = [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in EXAMPLES]
    return pytest.mark.parametrize("name", cases, indirect=True, scope="module")


# The graphs of the other tasks are similar to one of these.
of_each_graph = of_graphs("question_answering", "parsing", "tagging")


@pytest.fixture(scope="module")
def folder(name, folders) -> pathlib.Path:
    return folders[name]


@pytest.fixture(scope="module")
def translator(folder) -> Translator:
    return Translator.load(folder / "run")


@pytest.fixture(scope="module")
def version(name, folders) -> pathlib.Path:
    """The export of the task's run, written by the program."""
    folder = folders[name]
    if not (folder / "export").exists():
        flags = [f"--model_dir={folder / 'run'}", f"--export_dir={folder / 'export' / 'mine'}"]
        ((status, _, errors),) = run_cases("launch.export", [(flags, b"")])
        assert status == 0, errors
    return folder / "export" / "mine" / "1"


@pytest.fixture(scope="module")
def loaded(version):
    """The export as TensorFlow loads it."""
    return tf.saved_model.load(str(version))


def test_every_task_is_covered():
    assert {"translation", *EXAMPLES} == set(TASKS)


def test_the_run_stores_its_task(name, folder, translator):
    config = Run(folder / "run").config
    assert config.data.task == translator.task.name == name
    for field, value in task(name).decode.items():
        assert getattr(config.decode, field) == value


def test_a_run_can_be_initialised_from_denoising(folders, tmp_path):
    denoising, reviews = folders["denoising"] / "run", folders["classification"]
    files = file_flags("classification", reviews, "train", "train_")
    data_dir, model_dir = f"--data_dir={tmp_path / 'data'}", f"--model_dir={tmp_path / 'run'}"
    for program, arguments in (
        ("prepare_data", ["--task=classification", *files, data_dir, f"--vocab_from={denoising}"]),
        ("train", [data_dir, model_dir, f"--init_from={denoising}", "--set=train.max_steps=2"]),
    ):
        ((status, output, errors),) = run_cases(f"launch.{program}", [(arguments, b"")])
        assert status == 0, errors
    before, after = (Translator.load(folder) for folder in (denoising, tmp_path / "run"))
    text = ROUGH["denoising"][0]
    assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
    assert after.tokenizer.symbols.keys() - before.tokenizer.symbols.keys() == {
        "<=positive>",
        "<=negative>",
        "<=none>",
    }
    assert after.translate(ROUGH["classification"])[0].text in ("positive", "negative", "none")
    assert Run(tmp_path / "run").init_from["model_dir"] == str(denoising)


def test_a_long_paragraph_has_several_parts(folders):
    translator = Translator.load(folders["question_answering"] / "run")
    long, short, _ = (each.num_parts for each in translator.translate(ROUGH["question_answering"]))
    assert long > 1 and short == 1


def test_a_task_overrides_the_output_limit_in_exports_too(folders):
    """The task overrides lower limits in the settings."""
    config = DecodeConfig(beam_size=1, max_length_factor=0.0, max_length_offset=2)
    translator = Translator.load(folders["tagging"] / "run", settings=TranslatorSettings(config, ["B-PER"]))
    tokenizers = (translator.tokenizer.graph_tokenizer(),) * 2
    exported = signatures(Pipeline(translator, Weights(translator.single_model), tokenizers))
    lines = [" ".join(["Ana"] * 12), "Bo"]
    actual = exported["serving_default"](tf.constant(lines))["translation"]
    expected = [translation.text for translation in translator.translate(lines)]
    assert [text.decode() for text in actual.numpy()] == expected
    assert len(expected[0].split()) == 12
    assert "B-PER" not in " ".join(expected)


def test_a_long_text_has_one_label(folders):
    """The label comes from the first part, as in training."""
    translator = Translator.load(folders["classification"] / "run")
    for line in ROUGH["classification"][:2]:
        long = f"{line.strip('.')}. {'in it with a film. ' * 30}"
        (labels,) = translator.translate_nbest([long], 3)
        assert {each.text for each in labels} == {"positive", "negative", "none"}
        assert translator.translate([long])[0].num_parts == 1


def test_evaluation_uses_the_scores_of_the_task(name, folder, evaluated):
    """Scores the split, the file from which it was made, and outputs in a file."""
    split, own_file, scored, perfect, alone, both = evaluated
    assert [status for status, *_ in (split, own_file, scored, perfect)] == [0] * 4
    hypotheses = folder / "run" / "evaluation" / "test" / "hypotheses.txt"
    assert hypotheses.read_bytes() == (folder / "other" / "hypotheses.txt").read_bytes()
    read = [task(name).outputs(path.read_text().splitlines(), "") for path in (hypotheses, folder / "test")]
    for score in task(name).scores(*read):
        line = f"{score.name} +{score.value:.2f}  {re.escape(score.signature)}"
        assert all(re.search(f"^{line}$", out, re.MULTILINE) for _, out, _ in (split, own_file, scored)), line
    for score in task(name).scores(read[1], read[1]):
        assert re.search(f"^{score.name} +{score.value:.2f}", perfect[1], re.MULTILINE)
    assert all(task(name).report(*read) in out for _, out, _ in (split, scored))
    assert alone[::2] == (1, "error: give --task, --hypotheses and --references together\n")
    assert both[0] == 1 and "scored without a model" in both[2]


@of_each_graph
def test_an_export_returns_the_outputs_of_the_search(name, translator, loaded):
    size = translator.config.beam_size
    actual = loaded.signatures["nbest"](tf.constant(ROUGH[name]))["translations"].numpy()
    expected = [[t.text for t in row] for row in translator.translate_nbest(ROUGH[name], size)]
    assert [[text.decode() for text in row] for row in actual[:2]] == [
        [*row, *[""] * (size - len(row))] for row in expected[:2]
    ]


@of_each_graph
def test_an_export_scores_targets(name, folder, translator, loaded):
    sides = [(folder / "data" / f"test.{side}.txt").read_text().splitlines() for side in ("source", "target")]
    expected = translator.score(*sides)
    actual = loaded.signatures["score"](**dict(zip(("text", "target"), sides, strict=True)))
    assert actual["token_count"].numpy().tolist() == [len(score.pieces) for score in expected]
    written = [task(name).target(*pair) for pair in zip(*sides, strict=True)]
    pieces = [(*translator.tokenizer.pieces(translator.tokenizer.encode(text)), "</s>") for text in written]
    assert [score.pieces for score in expected] == pieces
    np.testing.assert_allclose(actual["log_probability"], [s.log_prob for s in expected], rtol=1e-4, atol=1e-3)


@of_graphs("parsing")
def test_a_server_answers(name, translator, version):
    (outputs,) = programs.predict(version.parent, {"inputs": ROUGH[name]})
    assert outputs["translation"] == [translation.text for translation in translator.translate(ROUGH[name])]
