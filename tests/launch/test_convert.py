"""Importing models of other projects as runs, and exporting runs to formats of other projects."""

import json
import pathlib

import numpy as np
import pytest

from t2t_keras.formats import huggingface
from t2t_keras.formats.files.tensor_files import write_safetensors
from t2t_keras.inference.translator import Translator
from t2t_keras.runs.run import Run
from tests.formats import foreign, huggingface_folder, test_marian
from tests.formats.hub import serving
from tests.inference import tiny
from tests.programs import run_cases

pytestmark = pytest.mark.integration

PAIRS = [(f"{foreign.ENGLISH[n % 3]} {n}", f"{foreign.GERMAN[n % 2]} {n}") for n in range(120)]
TRAIN = ["max_steps=20", "checkpoint_steps=20", "tokens_per_batch=200", "warmup_steps=5", "validation_sentences=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("convert")
    huggingface_folder.make_folder(folder / "opus", np.random.default_rng(1))
    tensors = huggingface_folder.make_folder(folder / "broken", np.random.default_rng(1))
    tensors["model.encoder.layers.0.fc1.bias"][3] = np.nan
    write_safetensors(folder / "broken" / "model.safetensors", tensors)
    test_marian.make_folder(folder / "marian", np.random.default_rng(1))
    for split, pairs in (("train", PAIRS[6:]), ("valid", PAIRS[:3]), ("test", PAIRS[3:6])):
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (folder / f"{split}.{side}").write_text("\n".join(lines), encoding="utf-8")
    tiny.make_run(folder / "ours")
    return folder


@pytest.fixture(scope="module")
def results(folder) -> dict[str, tuple[int, str, str]]:
    opus, run = f"--input={folder / 'opus'}", f"--model_dir={folder / 'run'}"
    ours, output = f"--model_dir={folder / 'ours'}", f"--output={folder / 'output'}"
    cases = {
        "in": ["--from=huggingface", opus, run, "--target_language=nl"],
        "again": ["--from=huggingface", opus, run],
        "out": ["--to=huggingface", run, output],
        "out again": ["--to=huggingface", run, output],
        "pre": ["--to=huggingface", ours, f"--output={folder / 'never'}", "--quantization=int8"],
        "litert": ["--to=litert", ours, f"--output={folder / 'litert'}"],
        "numbers": ["--to=litert", ours, f"--output={folder / 'never'}", "--quantization=bfloat16"],
        "checkpoint": ["--from=huggingface", opus, f"--model_dir={folder / 'new'}", "--checkpoint=10"],
        "language": ["--to=litert", ours, f"--output={folder / 'never'}", "--source_language=en"],
        "unknown": ["--from=marian", f"--input={folder / 'marian'}", f"--model_dir={folder / 'marian_run'}"],
        "both": ["--from=huggingface", "--to=huggingface", run],
        "neither": [run],
        "no input": ["--from=huggingface", run],
        "no output": ["--to=huggingface", run],
        "nowhere": ["--from=huggingface", f"--input={folder / 'nowhere'}", f"--model_dir={folder / 'new'}"],
        "no numbers": ["--from=huggingface", f"--input={folder / 'broken'}", f"--model_dir={folder / 'new'}"],
        "no run": ["--to=huggingface", f"--model_dir={folder / 'nowhere'}", f"--output={folder / 'never'}"],
    }
    return dict(zip(cases, run_cases("launch.convert", [(case, b"") for case in cases.values()]), strict=True))


def test_import_creates_a_run(folder, results):
    model = huggingface.read(folder / "opus")
    count = sum(array.size for array in model.weights.values())
    assert results["in"] == (0, f"{folder / 'run'}: {count:,} parameters\n", "")
    run = Run(folder / "run")
    assert run.config.data.target_language == "nl" and run.config.model == model.config.model
    assert json.loads(run.config_path.read_text())["imported"] == {
        "format": "huggingface",
        "input": str(folder / "opus"),
    }
    translator = Translator.load(folder / "run")
    assert translator.tokenizer.source.serialized == model.tokenizer.source.serialized
    assert len(translator.translate(foreign.TEXTS)) == len(foreign.TEXTS)


def test_import_from_the_hub(folder, monkeypatch):
    pytest.importorskip("huggingface_hub")
    arguments = ["--from=huggingface", "--input=hf://owner/name", f"--model_dir={folder / 'downloaded'}"]
    with serving(folder / "opus") as server:
        for name, value in server.environment(folder / "cache").items():
            monkeypatch.setenv(name, value)
        ((status, output, _),) = run_cases("launch.convert", [(arguments, b"")])
    assert status == 0 and output.startswith(f"{folder / 'downloaded'}: ")
    assert Run(folder / "downloaded").config.model == huggingface.read(folder / "opus").config.model


def test_assumed_languages_are_reported(folder, results):
    note = f"note: {folder / 'marian'} does not name its languages; assumed: en, de\n"
    assert results["unknown"][0] == 0 and results["unknown"][1].startswith(note)


def test_exported_weights_are_unchanged(folder, results):
    assert results["out"][:2] == (0, results["in"][1].replace(str(folder / "run"), str(folder / "output")))
    weights = huggingface.read(folder / "output").weights
    for name, array in huggingface.read(folder / "opus").weights.items():
        np.testing.assert_array_equal(weights[name], array)


def test_export_for_litert(folder, results):
    assert results["litert"][::2] == (0, "")
    names = {"model.tflite", "search.json", "source.model", "target.model", "translate.py"}
    assert {path.name for path in (folder / "litert").iterdir()} == names


@pytest.mark.parametrize(
    "case, message",
    [
        ("again", "{folder}/run already exists; give a new folder"),
        ("out again", "{folder}/output already exists; give a new folder"),
        ("pre", "--quantization=int8: transformers supports float32, and casts when it loads"),
        ("numbers", "--quantization=bfloat16: LiteRT supports float32, float16, int8"),
        ("checkpoint", "--checkpoint cannot be combined with --from"),
        ("language", "--source_language cannot be combined with --to"),
        ("both", "give either --from or --to"),
        ("neither", "give either --from or --to"),
        ("no input", "--from requires --input"),
        ("no output", "--to requires --output"),
        ("nowhere", "{folder}/nowhere is not a folder"),
        ("no numbers", "{folder}/broken: encoder/layer_0/feed_forward/inner_bias has values that are infinite or NaN"),
        ("no run", "{folder}/nowhere is not a run's directory: it has no config.json"),
    ],
)
def test_errors(folder, results, case, message):
    assert results[case][::2] == (1, f"error: {message.format(folder=folder)}\n")
    assert {path.name for path in folder.iterdir() if path.name.startswith((".", "never", "new"))} == set()


def test_imported_models_can_be_fine_tuned_evaluated_and_exported(folder, results):
    data, tuned = f"--data_dir={folder / 'data'}", f"--model_dir={folder / 'tuned'}"
    places = [f"{split}_{side}" for split in ("train", "valid", "test") for side in ("source", "target")]
    files = [f"--{place}={folder / place.replace('_', '.')}" for place in places]
    programs = [
        ("prepare_data", [*files, data, f"--vocab_from={folder / 'run'}", "--symbols=<2de>", "--processes=1"]),
        ("train", [data, tuned, f"--init_from={folder / 'run'}", *(f"--set=train.{each}" for each in TRAIN)]),
        ("evaluate", [tuned, "--split=test"]),
        ("export", [tuned, f"--export_dir={folder / 'export' / 'mine'}"]),
    ]
    for program, arguments in programs:
        (result,) = run_cases(f"launch.{program}", [(arguments, b"")])
        assert result[0] == 0, result
    before, after = (Translator.load(folder / name) for name in ("run", "tuned"))
    assert after.tokenizer.vocab_size == before.tokenizer.vocab_size + 1
    assert after.tokenizer.source.symbols.keys() == {">>deu<<", "<2de>"}
    for text in foreign.ENGLISH:
        assert after.tokenizer.source.encode(text) == before.tokenizer.source.encode(text)
    assert after.tokenizer.source.serialized != after.tokenizer.serialized
