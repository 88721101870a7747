"""A family of models that is registered by an extension works wherever the Transformer does."""

import importlib
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from t2t_keras.config import Config, DecodeConfig
from t2t_keras.config import model_config as registry
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.models import families, presets
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from tests import programs
from tests.faults import drill
from tests.programs import run_cases
from tests.training import tiny_training

pytestmark = pytest.mark.integration

TESTS = pathlib.Path(__file__).parent
EXTENSION = f"--extension={TESTS / 'toy_family.py'}"
STEPS, CHECKPOINT_STEPS = 120, 20
PATIENCE = 600  # seconds that any wait may take on a busy machine


@pytest.fixture(scope="module", autouse=True)
def toy_family():
    """Registers the family while these tests run, because other tests list the registered families."""
    with (
        mock.patch.dict(registry._FAMILIES),
        mock.patch.dict(families._MODELS),
        mock.patch.dict(presets.PRESETS),
        mock.patch.object(sys, "path", [*sys.path, str(TESTS)]),
    ):
        yield importlib.import_module("toy_family")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    return tiny_training.make_data(tmp_path_factory.mktemp("own_family"))


def flags(data: PreparedData, name: str, *more: str, **train) -> list[str]:
    train = {"max_steps": STEPS, "checkpoint_steps": CHECKPOINT_STEPS, "keep_checkpoints": 9, "log_steps": 1, **train}
    train |= {"warmup_steps": 20, "learning_rate_scale": 0.3, "tokens_per_batch": 100, "ema_decay": 0.9}
    settings = [f"--set=train.{name}={value}" for name, value in train.items()]
    folder = pathlib.Path(data.directory)
    base = [EXTENSION, f"--data_dir={folder}", f"--model_dir={folder.parent / name}", "--preset=toy"]
    return [*base, *settings, *more]


def kill(arguments: list[str], model_dir: pathlib.Path, step: int) -> None:
    """Starts the program, and kills it when its metrics contain the step."""
    with programs.Program(["-m", "launch.train", *arguments], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + PATIENCE
        while not any(record["step"] >= step for record in read_metrics(Run(model_dir).metrics_path)[-5:]):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def runs(data) -> pathlib.Path:
    """The folder of runs: an uninterrupted and a killed one, and runs on one and eight replicas without dropout."""
    folder = pathlib.Path(data.directory).parent
    kill(flags(data, "killed"), folder / "killed", CHECKPOINT_STEPS + 7)
    few = {"max_steps": 6, "checkpoint_steps": 6, "steps_per_call": 3}
    plain = "--set=model.dropout_rate=0"
    cases = [
        flags(data, "killed"),
        flags(data, "alone"),
        flags(data, "one", plain, **few),
        [EXTENSION, f"--model_dir={folder / 'one'}"],  # the run stores its family
        [f"--model_dir={folder / 'alone'}", "--extension=no_such_module"],
    ]
    *done, missing = run_cases("launch.train", [(case, b"") for case in cases])
    # Risk training starts from the trained weights; one of its runs stops between two log lines.
    few_of_risk = {**few, "objective": "risk", "risk_samples": 3, "log_steps": 4, "checkpoint_steps": 3}
    start_flags = [plain, f"--init_from={folder / 'alone'}"]
    half_of_risk = {**few_of_risk, "max_steps": 3}
    cases = [
        flags(data, "risk_halves", *start_flags, **half_of_risk),
        flags(data, "risk_halves", *start_flags, **few_of_risk),
    ]
    cases.append(flags(data, "risk", *start_flags, **few_of_risk))
    done += run_cases("launch.train", [(case, b"") for case in cases])
    done += run_cases("launch.train", [(flags(data, "eight", plain, "--strategy=cpu", "--replicas=8", **few), b"")])
    assert [status for status, *_ in done] == [0] * 8, done
    assert missing[0] == 1 and missing[2].startswith("error: --extension=no_such_module: No module named")
    return folder


@pytest.fixture(scope="module")
def translator(runs) -> Translator:
    return Translator.load(runs / "alone")


@pytest.mark.slow
def test_killed_and_resumed_training_equals_uninterrupted_training(runs):
    drill.assert_same_checkpoint(runs / "killed", runs / "alone", STEPS)
    assert drill.records(runs / "killed") == drill.records(runs / "alone")
    assert drill.records(runs / "alone")[-1]["step"] == STEPS


LINES = tiny_training.sentences(5, seed=9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 3, "sampling": True, "top_k": 20},
        {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5},
        {"beam_size": 2, "no_repeat_ngram_size": 2, "length_normalization": "average"},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_searches_agree_with_forced_decoding(runs, settings):
    """The cache follows the hypotheses, and each step equals a position of the forward pass."""
    translator = Translator.load(runs / "alone", settings=DecodeConfig(max_length_offset=8, **settings))
    for nbest in translator.translate_nbest(LINES, settings["beam_size"]):
        sources, targets = ([getattr(t, name)[0] for t in nbest] for name in ("source_ids", "token_ids"))
        forced = translator.score_tokens(sources, targets)
        np.testing.assert_allclose([f.log_prob for f in forced], [t.log_prob for t in nbest], rtol=1e-4, atol=1e-4)
        assert len({tuple(ids) for ids in targets}) > len(targets) // 2


@pytest.mark.slow
def test_prefixes_and_constraints(translator):
    requests = [Request(LINES[0], prefix="ba do"), Request(LINES[1], constraints=("ge fo",), excluded=("ka",))]
    texts = [translation.text for translation in translator.translate(requests)]
    assert texts[0].startswith("ba do") and "ge fo" in texts[1] and "ka" not in texts[1].split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coverage_penalty": 0.2}, r"decode\.coverage_penalty: the model does not support coverage"),
        ({"bfloat16": True}, r"decode\.bfloat16: the model does not support bfloat16"),
    ],
)
def test_unsupported_capabilities_are_rejected(runs, settings, message):
    with pytest.raises(InputError, match=message):
        Translator.load(runs / "alone", settings=DecodeConfig(**settings))


@pytest.fixture(scope="module")
def version(translator, runs) -> pathlib.Path:
    return export_translator(translator, Run(runs / "alone").config, runs / "saved" / "toy")


@pytest.mark.slow
def test_exports_can_be_served_without_the_extension(translator, version):
    (outputs,) = programs.predict(version.parent, {"inputs": LINES})
    assert outputs["translation"] == [translation.text for translation in translator.translate(LINES)]


@pytest.mark.slow
def test_other_programs(translator, runs, tmp_path):
    """The program prints sizes, translates, and rejects a family that no extension registers."""
    source = tmp_path / "source.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    model_dir = f"--model_dir={runs / 'alone'}"
    (table,) = run_cases("launch.describe", [([EXTENSION, model_dir, "--devices=8"], b"")])
    assert table[0] == 0 and re.search(r"total +5,328", table[1]) and "family " in table[1]
    cases = [[EXTENSION, model_dir, f"--input={source}"], [model_dir, f"--input={source}"]]
    known, unknown = (run_cases("launch.translate", [(case, b"")])[0] for case in cases)
    assert known[:2] == (0, "".join(f"{translation.text}\n" for translation in translator.translate(LINES)))
    picture = [EXTENSION, model_dir, f"--source={LINES[0]}", f"--output={tmp_path}"]
    (attention_result,) = run_cases("launch.attention", [(picture, b"")])
    assert attention_result[0] == 1 and attention_result[2].startswith("error: the model (Toy) has no attention, which")
    assert unknown[0] == 1
    assert re.search("unknown model.family 'toy'; valid: .*, transformer, and the families of --extension", unknown[2])


def test_parameter_counts_agree_with_the_model(toy_family):
    model = toy_family.Toy(toy_family.ToyConfig(vocab_size=23, d_model=6))
    model.build()
    assert model.count_params() == sum(model.config.parameter_counts().values())


def test_unpickled_settings_import_the_family(toy_family):
    """Processes that determine the batch size receive pickled settings."""
    code = "import pickle, sys; from t2t_keras.models.families import make_model; "
    code += "make_model(pickle.load(sys.stdin.buffer).model)"
    config = pickle.dumps(Config(model=toy_family.ToyConfig(vocab_size=9)))
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    programs.run(["-c", code], input=config, check=True, env=environment)


def test_conflicting_extensions_are_rejected(tmp_path):
    for name in ("toy_family.py", "queue.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    flags = [f"--extension={TESTS / 'toy_family.py'}", f"--extension={tmp_path / 'toy_family.py'}"]
    cases = [[*flags, "--preset=toy"], [f"--extension={tmp_path / 'queue.py'}"], ["--extension=none.py"]]
    results = run_cases("launch.describe", [(case, b"") for case in cases])
    for (status, _, error), word in zip(results, ("toy_family", "queue", "no such file"), strict=True):
        assert status == 1 and error.startswith("error: --extension=") and word in error
