"""Tests of launch.train: signals, killed processes and invalid input."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from t2t_keras.config import Config, TrainConfig, TransformerConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.training.new_config import make_config
from tests import programs
from tests.programs import assert_error, run_cases
from tests.training import tiny_training

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 200
PATIENCE = 600  # seconds that a few steps may take on a busy machine
PROGRAM = "tests.training.launch_quickly"
# Runs with data of several sentences per line, and a run that was configured so.
IN_LINES = ("begins elsewhere", "begins from paper", "own limit", "own limit again")
# Data with different output limits.
LIMITS: dict[str, dict[str, float]] = {
    "unlimited_data": {},
    "other_data": {"max_length_factor": 2.25, "max_length_offset": 33},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Prepared data and a flag file."""
    folder = tmp_path_factory.mktemp("train")
    data = tiny_training.make_data(folder)
    sizes = {"max_steps": STEPS, "checkpoint_steps": 10, "validation_steps": 100, "keep_checkpoints": 3}
    settings = {
        **{f"model.{name}": value for name, value in tiny_training.MODEL.items()},
        **{f"train.{name}": value for name, value in {**tiny_training.TRAIN, **sizes}.items()},
        "model.dropout_rate": 0.3,
        "train.learning_rate_scale": 0.2,
    }
    flags = [f"--data_dir={data.directory}", "--preset=tiny"]
    flags += [f"--set={name}={value}" for name, value in settings.items()]
    (folder / "flags").write_text("\n".join(flags), encoding="utf-8")
    return folder


def copy_with_limit(data: pathlib.Path, copy: pathlib.Path, limit: dict[str, float]) -> None:
    """Copies prepared data with a different output limit for lines of several sentences, or without a limit."""
    shutil.copytree(data, copy)
    record = json.loads((copy / "data.json").read_text(encoding="utf-8"))
    record["output_limit"] = limit
    record["split"] = "lines" if limit else "sentences"
    (copy / "data.json").write_text(json.dumps(record), encoding="utf-8")


def stop(folder: pathlib.Path, number: signal.Signals, step: int) -> subprocess.CompletedProcess:
    """Trains the run `stopped`, and sends a signal when its metrics contain the step."""
    command = ["-m", PROGRAM, f"--flagfile={folder / 'flags'}"]
    metrics = Run(folder / "stopped").metrics_path
    with programs.Program(
        [*command, f"--model_dir={folder / 'stopped'}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:
        deadline = time.monotonic() + PATIENCE
        while not any(record["step"] >= step for record in read_metrics(metrics)[-5:]):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise AssertionError(process.communicate()[1])
            time.sleep(0.02)
        process.send_signal(number)
        stderr = process.communicate(timeout=PATIENCE)[1]
    return subprocess.CompletedProcess(command, process.returncode, "", stderr)


@pytest.fixture(scope="module")
def stopped(folder) -> list[tuple[subprocess.CompletedProcess, list[int]]]:
    """Three interruptions of one run, with the checkpoints after each."""
    ends = []
    for number, step in (
        (signal.SIGTERM, 15),
        (signal.SIGINT, 50),
        (signal.SIGKILL, 117),  # between two checkpoints
    ):
        result = stop(folder, number, step)
        ends.append((result, checkpoints.steps(Run(folder / "stopped").checkpoints_path)))
    return ends


@pytest.fixture(scope="module")
def results(folder, stopped):
    """By case: exit status, standard output and standard error."""
    del stopped
    flagfile, data_dir = f"--flagfile={folder / 'flags'}", f"--data_dir={folder / 'data'}"
    own_search = ["--set=decode.split=lines", "--set=decode.beam_size=3"]
    new, tiny, one_step = "--model_dir=NEW", "--preset=tiny", "--set=train.max_steps=1"
    untrained = f"--extension={pathlib.Path(__file__).with_name('untrained.py')}"

    def new_from(name: str) -> list[str]:
        return [new, f"--init_from={folder / name}"]

    (folder / "interrupted").mkdir()
    (folder / "interrupted" / "preparing.json").write_text("{}", encoding="utf-8")
    (folder / "a_file").write_text("", encoding="utf-8")
    for name, limit in LIMITS.items():
        copy_with_limit(folder / "data", folder / name, limit)
    export = folder / "export" / "1"
    (export / "assets.extra").mkdir(parents=True)
    (export / "saved_model.pb").write_bytes(b"a graph")
    (export / "assets.extra" / "config.json").write_text("{}", encoding="utf-8")
    cases = {
        "resumed": [flagfile, f"--model_dir={folder / 'stopped'}"],
        "uninterrupted": [flagfile, f"--model_dir={folder / 'uninterrupted'}"],
        # The run stores its data folder and its settings.
        "again": [f"--model_dir={folder / 'uninterrupted'}"],
        "paper": [flagfile, new, "--preset=base", one_step],
        "own limit": [flagfile, new, one_step, "--set=decode.max_length_offset=7", *own_search],
        "own limit again": [flagfile, f"--model_dir={folder / 'own_limit'}", one_step],
        "of unlimited data": [flagfile, new, f"--data_dir={folder / 'unlimited_data'}", one_step],
        "of unlimited data again": [f"--model_dir={folder / 'of_unlimited_data'}", data_dir, flagfile, one_step],
        "differs": [f"--model_dir={folder / 'uninterrupted'}", "--set=train.warmup_steps=7", "--set=train.seed=3"],
        "diverges": [flagfile, new, "--set=train.learning_rate_scale=1e30"],
        "preset": [new, data_dir, "--preset=huge"],
        "no preset": [new, data_dir],
        "no data_dir": [new, tiny],
        "missing data": [new, tiny, f"--data_dir={folder / 'nowhere'}"],
        "moved data": [f"--model_dir={folder / 'moved'}"],
        "moved data given": [f"--model_dir={folder / 'moved'}", f"--data_dir={folder / 'data'}"],
        "interrupted data": [new, tiny, f"--data_dir={folder / 'interrupted'}"],
        "data setting": [new, data_dir, tiny, "--set=data.seed=3"],
        "vocabulary setting": [new, data_dir, tiny, "--set=model.vocab_size=3"],
        "weights of corpora": [new, data_dir, tiny, "--set=train.corpus_weights=1,2"],
        "frozen nothing": [new, data_dir, tiny, "--set=train.frozen=encodr/*"],
        "small batch": [new, data_dir, tiny, "--set=train.tokens_per_batch=3"],
        "a file": [f"--model_dir={folder / 'a_file'}", data_dir, tiny],
        "an export": [f"--model_dir={folder / 'export'}", data_dir, tiny],
        "a bucket": ["--model_dir=s3:/mine/run", data_dir, tiny],
        "negative replicas": [new, data_dir, tiny, "--replicas=-1"],
        "split weights": [new, data_dir, tiny, "--model_parallel=2"],
        # Settings and data of the run that supplies the weights.
        "begins": [new, f"--init_from={folder / 'uninterrupted'}@{STEPS}", "--set=train.max_steps=2"],
        "begins again": [f"--model_dir={folder / 'begun'}", one_step],
        "starts again": [f"--model_dir={folder / 'left'}", f"--init_from={folder / 'uninterrupted'}", untrained],
        "begins elsewhere": [*new_from("uninterrupted"), f"--data_dir={folder / 'other_data'}", untrained],
        "begins from paper": [*new_from("paper"), f"--data_dir={folder / 'other_data'}", untrained],
        "nowhere": [new, f"--init_from={folder / 'nowhere'}"],
    }
    started = Run(folder / "begun")  # a run that stopped before its first checkpoint
    data = PreparedData.open(folder / "data")
    init_from = {"model_dir": str(folder / "uninterrupted"), "checkpoint": "best", "path": "?"}
    model = TransformerConfig(**{**tiny_training.MODEL, "vocab_size": data.tokenizer.vocab_size})
    config = Config(model=model, data=data.config, train=TrainConfig(**tiny_training.TRAIN))
    started.start(config, data.directory, data.vocab_path, init_from)
    other = dataclasses.replace(config, train=dataclasses.replace(config.train, warmup_steps=77))
    Run(folder / "left").start(other, data.directory, data.vocab_path)
    shutil.copytree(folder / "stopped", folder / "moved")
    record = json.loads((folder / "moved" / "config.json").read_text(encoding="utf-8"))
    (folder / "moved" / "config.json").write_text(json.dumps({**record, "data_dir": str(folder / "gone")}))
    for name, case in cases.items():
        # Each case gets a new run.
        cases[name] = [flag.replace("NEW", str(folder / name.replace(" ", "_"))) for flag in case]
    return dict(zip(cases, run_cases(PROGRAM, [(case, b"") for case in cases.values()]), strict=True))


def test_signals_save_a_checkpoint_and_set_the_exit_status(stopped):
    for (result, steps), number in zip(stopped[:2], (signal.SIGTERM, signal.SIGINT), strict=True):
        assert result.returncode == 128 + number, result.stderr
        assert "Traceback" not in result.stderr
        last_line = result.stderr.splitlines()[-1]
        assert f"stopped by {number.name}" in last_line and "same command" in last_line
        assert last_line.startswith(f"step {steps[-1]}:")
    assert stopped[2][0].returncode == -signal.SIGKILL


def test_interrupted_training_equals_uninterrupted_training(folder, stopped, results):
    steps = [ends[1][-1] for ends in stopped]
    assert 15 <= steps[0] < 50 <= steps[1] < steps[2] < STEPS
    for name in ("resumed", "uninterrupted"):
        status, _, stderr = results[name]
        assert (status, stderr.splitlines()[-1]) == (0, f"step {STEPS}: reached train.max_steps")
        assert re.search(r"^training [\d,]+ parameters with [\d,]+ pairs on 1 replica on CPU; ", stderr, re.MULTILINE)
        pattern = r"^resumed from step \d+ \(checkpoint of 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\)$"
        resumed = re.search(pattern, stderr, re.MULTILINE)
        assert bool(resumed) is (name == "resumed"), stderr
    tiny_training.assert_same_end(folder / "stopped", folder / "uninterrupted", STEPS)
    lines = tiny_training.records(folder / "stopped", "train")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert tiny_training.records(folder / "stopped", "valid") == tiny_training.records(
        folder / "uninterrupted", "valid"
    )
    assert not list(Run(folder / "stopped").checkpoints_path.glob(".*"))


def test_runs_store_their_data_folder_and_settings(results):
    assert results["again"] == (0, "", f"step {STEPS}: had reached train.max_steps before\n")


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("uninterrupted", "data"),
        ("again", "data"),
        ("paper", (1.0, 50)),
        ("own limit", (1.0, 7)),
        ("own limit again", (1.0, 7)),
        ("of unlimited data", (1.0, 50)),
        ("of unlimited data again", (1.0, 50)),
        ("begins", "data"),
        ("begins elsewhere", "other_data"),
        ("begins from paper", (1.0, 50)),
    ],
)
def test_output_limit_depends_on_the_data(folder, results, name, limit):
    """Unless the user, the preset of the paper or the run sets a limit."""
    status, _, stderr = results[name]
    assert status == 0, stderr
    if isinstance(limit, str):
        settings = PreparedData.open(folder / limit).output_limit
        limit = settings["max_length_factor"], settings["max_length_offset"]
        assert limit != (1.0, 50)
    run = {"again": "uninterrupted"}.get(name, name.removesuffix(" again").replace(" ", "_"))
    decode = Run(folder / run).config.decode
    assert (decode.max_length_factor, decode.max_length_offset) == limit
    assert decode.split == ("lines" if name in IN_LINES else "sentences")
    assert decode.beam_size == (3 if name.startswith("own limit") else 4)


def test_python_api_creates_the_same_settings(folder, results):
    assert results["uninterrupted"][0] == 0
    lines = (folder / "flags").read_text(encoding="utf-8").splitlines()
    settings = [line.removeprefix("--set=") for line in lines if line.startswith("--set=")]
    expected = make_config("tiny", PreparedData.open(folder / "data"), settings)
    assert Run(folder / "uninterrupted").config == expected


@pytest.mark.parametrize("name, checkpoint", [("begins", str(STEPS)), ("begins again", "best")])
def test_starting_from_the_weights_of_another_run(folder, results, name, checkpoint):
    status, _, stderr = results[name]
    assert status == 0, stderr
    path = checkpoints.resolve(Run(folder / "uninterrupted").checkpoints_path, checkpoint)
    lines = stderr.splitlines()
    assert lines[0] == f"starts from the weights of {path}"
    assert lines[1].startswith("copied: ") and lines[2].startswith("new: none")
    run = Run(folder / ("begins" if name == "begins" else "begun"))
    assert run.init_from["path"] == str(path)
    before = tiny_training.records(folder / "uninterrupted", "train")
    assert tiny_training.records(run.path, "train")[0]["loss"] < 0.8 * before[0]["loss"]


def test_runs_resume_with_moved_data(folder, results):
    assert results["moved data given"][0] == 0, results["moved data given"][2]
    assert Run(folder / "moved").data_dir == folder / "data"


def test_runs_without_checkpoints_may_start_again(folder, results):
    assert results["starts again"][0] == 0, results["starts again"][2]
    assert Run(folder / "left").config.train.warmup_steps == Run(folder / "uninterrupted").config.train.warmup_steps


@pytest.mark.parametrize(
    "name, words",
    [
        ("nowhere", ["nowhere is not a run's directory"]),
        ("differs", ["a different configuration", "train.warmup_steps: 20 -> 7", "train.seed: 1 -> 3", "--model_dir"]),
        ("preset", ["unknown preset 'huge'", "tiny, base, big", "table3_e_learned"]),
        ("no preset", ["--preset must be given", "tiny, base, big"]),
        ("no data_dir", ["--data_dir must be given"]),
        ("missing data", ["nowhere", "launch.prepare_data"]),
        ("moved data", ["gone: the data that", "moved was trained on are missing; give --data_dir"]),
        ("interrupted data", ["interrupted", "launch.prepare_data again"]),
        ("data setting", ["data.seed=3", "launch.prepare_data"]),
        ("vocabulary setting", ["model.vocab_size=3", "launch.prepare_data"]),
        ("weights of corpora", ["train.corpus_weights has 2 values", "the number of corpora", "is 1;"]),
        ("frozen nothing", ["train.frozen: no weight has a name that matches 'encodr/*'"]),
        ("small batch", ["train.tokens_per_batch=3", "at least"]),
        ("a file", ["a_file"]),
        ("an export", ["export holds an exported model, which cannot be trained", "--model_dir"]),
        ("a bucket", ["--model_dir=s3:/mine/run is not a path of this machine's file system"]),
        ("negative replicas", ["--replicas", "-1"]),
        ("split weights", ["--model_parallel=2", "KERAS_BACKEND=jax"]),
    ],
)
def test_errors(results, name, words):
    assert_error(results[name], *words)


def test_divergence_is_reported_in_the_last_line(folder, results):
    status, _, stderr = results["diverges"]
    assert status == 1
    assert "Traceback" not in stderr
    last_line = stderr.splitlines()[-1]
    for words in ("error: training diverged at step", "learning rate", "gradient norm", "epoch 0, batch", "is none"):
        assert words in last_line
    assert checkpoints.steps(Run(folder / "diverges").checkpoints_path) == []
