"""Every task from files of its own to a model that is served, by the programs."""

import pathlib
import random
import re
import subprocess
import sys

import c_program
import httpx
import numpy as np
import pytest
import tensorflow as tf
from drive import run_cases

from t2t_keras.inference.translator import Translator
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import TASKS, task

MODEL = ["num_encoder_layers=1", "num_decoder_layers=1", "d_model=16", "d_ff=32", "num_heads=2", "dropout_rate=0"]
TRAIN = ["max_steps=40", "checkpoint_steps=20", "tokens_per_batch=400", "warmup_steps=20", "validation_sentences=4"]
SETTINGS = [*(f"--set=model.{each}" for each in MODEL), *(f"--set=train.{each}" for each in TRAIN)]


def trees(rng: random.Random, count: int) -> list[str]:
    """Sentences of a small grammar, some trees on two lines."""
    nouns, verbs = ["dog", "cat", "bird", "tree", "-LRB-"], ["sees", "likes", "bites"]

    def noun_phrase(depth: int = 0) -> str:
        plain = f"(NP (DT the) (NN {rng.choice(nouns)}))"
        return f"(NP {plain} (PP (IN near) {noun_phrase(depth + 1)}))" if depth < 2 and rng.random() < 0.4 else plain

    return [
        f"( (S (NP-SBJ {noun_phrase()})\n  (VP (VBZ {rng.choice(verbs)}) {noun_phrase()} (NP (-NONE- *))) (. .)) )"
        for _ in range(count)
    ]


EXAMPLES = {"parsing": trees}
ROUGH = {"parsing": ["the dog sees the cat .", "( the ) bites", ""]}


@pytest.fixture(scope="module", params=EXAMPLES)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(name, tmp_path_factory) -> pathlib.Path:
    """The folder of files, data and a run that its programs have made; without a set to validate on, one is drawn."""
    folder, rng = tmp_path_factory.mktemp(name), random.Random(1)
    for split, count in (("train", 300), ("test", 12)):
        (folder / split).write_text("\n".join(EXAMPLES[name](rng, count)) + "\n", encoding="utf-8")
    files = [f"--{split}_source={folder / split}" for split in ("train", "test")]
    data_dir = f"--data_dir={folder / 'data'}"
    ((status, out, err),) = run_cases(
        "launch.prepare_data", [([f"--task={name}", *files, data_dir, "--vocab_size=320"], b"")]
    )
    assert status == 0, err
    run = [data_dir, f"--model_dir={folder / 'run'}", "--preset=tiny", *SETTINGS]
    ((status, out, err),) = run_cases("launch.train", [(run, b"")])
    assert status == 0, err
    return folder


@pytest.fixture(scope="module")
def translator(folder) -> Translator:
    return Translator.load(folder / "run")


@pytest.fixture(scope="module")
def version(folder) -> pathlib.Path:
    export = [f"--model_dir={folder / 'run'}", f"--export_dir={folder / 'export' / 'mine'}"]
    ((status, _, err),) = run_cases("launch.export", [(export, b"")])
    assert status == 0, err
    return folder / "export" / "mine" / "1"


def test_every_task_is_here():
    assert {"translation", *EXAMPLES} == set(TASKS)


def test_the_run_knows_its_task(name, folder, translator):
    config = Run(folder / "run").config
    assert config.data.task == translator.task.name == name
    for field, value in task(name).decode.items():
        assert getattr(config.decode, field) == value


def test_evaluation_scores_as_the_task_does(name, folder, translator):
    """On the split, on the file that it was made of, and on the outputs in a file."""
    run, test = f"--model_dir={folder / 'run'}", folder / "test"
    cases = [[run, "--split=test"], [run, f"--source={test}", f"--output_dir={folder / 'other'}"]]
    found = run_cases("launch.evaluate", [(case, b"") for case in cases])
    assert [status for status, *_ in found] == [0, 0], found
    hypotheses = folder / "run" / "evaluation" / "test" / "hypotheses.txt"
    assert hypotheses.read_bytes() == (folder / "other" / "hypotheses.txt").read_bytes()
    files = [f"--task={name}", f"--hypotheses={hypotheses}", f"--references={test}"]
    itself = [f"--task={name}", f"--hypotheses={test}", f"--references={test}"]
    scored, perfect, alone, both = run_cases(
        "launch.evaluate", [(case, b"") for case in (files, itself, files[1:], [*files, run])]
    )
    scores = task(name).scores(*(task(name).outputs(path.read_text().splitlines(), "") for path in (hypotheses, test)))
    for score in scores:
        line = f"{score.name} +{score.value:.2f}  {re.escape(score.signature)}"
        assert all(re.search(f"^{line}$", out, re.MULTILINE) for _, out, _ in (*found, scored)), line
        assert re.search(f"^{score.name} +100.00", perfect[1], re.MULTILINE)
    assert alone[::2] == (1, "error: --task, --hypotheses and --references go together\n")
    assert both[0] == 1 and "scored without a model" in both[2]


def test_training_is_monitored_by_the_task(name, folder, translator):
    sources, references = (
        (folder / "data" / f"valid.{side}.txt").read_text().splitlines()[:4] for side in ("source", "target")
    )
    hypotheses = [translation.text for translation in translator.translate(sources)]
    lines = (folder / "run" / "metrics.jsonl").read_text()
    assert f'"{task(name).metric}": {task(name).monitored(hypotheses, references)}' in lines


def test_an_export_answers_through_the_c_api(name, translator, version, tmp_path):
    if not (program := c_program.compiled(tmp_path)):
        pytest.skip("there is no C compiler here")
    import tensorflow_text

    (library,) = pathlib.Path(tensorflow_text.__file__).parent.rglob("_sentencepiece_tokenizer.so")
    expected = translator.translate(ROUGH[name])
    size = translator.config.beam_size
    found = c_program.translations(program, str(library), version, [line.encode() for line in ROUGH[name]], size)
    assert [text for text, _ in found] == [translation.text for translation in expected]
    np.testing.assert_allclose([s for _, s in found], [t.score for t in expected], rtol=1e-4, atol=1e-3)


def test_an_export_gives_all_that_the_search_found(name, translator, version):
    signatures = tf.saved_model.load(str(version)).signatures
    found = signatures["nbest"](tf.constant(ROUGH[name]))["translations"].numpy()
    expected = translator.translate_nbest(ROUGH[name], translator.config.beam_size)
    assert [[text.decode() for text in row] for row in found[:2]] == [[t.text for t in row] for row in expected[:2]]


def test_a_server_answers(name, translator, version):
    command = [sys.executable, "-m", "launch.serve", f"--export_dir={version.parent}", "--rest_port=0", "--grpc_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            rest = re.search(r"REST at (http://\S+),", server.stdout.readline()).group(1)
            answer = httpx.post(f"{rest}/v1/models/mine:predict", json={"inputs": ROUGH[name]}, timeout=60).json()
        finally:
            server.terminate()
    assert answer["outputs"]["translation"] == [translation.text for translation in translator.translate(ROUGH[name])]
