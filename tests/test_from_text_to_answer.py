"""The path through all programs, from two text files to a response of the server."""

import re

import numpy as np
import pytest

from tests import programs

MODEL = ["num_encoder_layers=1", "num_decoder_layers=1", "d_model=16", "d_ff=32", "num_heads=2", "dropout_rate=0"]
TRAIN = ["max_steps=30", "checkpoint_steps=10", "tokens_per_batch=400", "warmup_steps=10", "validation_sentences=4"]
# A barely trained model ends its outputs immediately or never.
SHORT = ["--beam_size=2", "--max_length_offset=4", "--min_length=2"]
SETTINGS = [*(f"--set=model.{each}" for each in MODEL), *(f"--set=train.{each}" for each in TRAIN)]
SIDES = (("source", "low"), ("target", "up"))
LINES = ["one two three", "", "seven six five four"]
# A term that only one line contains, so that one process translates with and without it.
TERM, FORMS = "two one", "SIX|FIVE"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two text files per split; a translation is its source in capitals."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(1)
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    for split, count in (("train", 300), ("test", 10)):
        lines = [" ".join(rng.choice(words, rng.integers(1, 8))) for _ in range(count)]
        (folder / f"{split}.low").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"{split}.up").write_text("\n".join(lines).upper() + "\n", encoding="utf-8")
    return folder


def test_from_text_files_to_a_response_of_the_server(folder):
    def launch(program: str, *flags: str, stdin: str = "") -> str:
        result = programs.run(["-m", f"launch.{program}", *flags], input=stdin, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    data, run, export_dir = folder / "data", folder / "run", folder / "export" / "mine"
    files = [f"--{split}_{side}={folder / split}.{end}" for split in ("train", "test") for side, end in SIDES]
    assert "pairs kept" in launch("prepare_data", *files, f"--data_dir={data}", "--vocab_size=320")
    launch("train", f"--data_dir={data}", f"--model_dir={run}", "--preset=tiny", *SETTINGS)
    assert b"validation score" in (run / "curves.svg").read_bytes()
    assert "averaged 2 checkpoints, of steps 20, 30" in launch(
        "average_checkpoints", f"--model_dir={run}", "--average_last=2"
    )
    scores = launch("evaluate", f"--model_dir={run}", "--split=test", *SHORT)
    assert re.search(r"^BLEU +[\d.]+ .*\|tok:13a\|", scores, re.MULTILINE)
    (folder / "terms.tsv").write_text(f"{TERM}\t{FORMS}\n", encoding="utf-8")
    flags = [f"--model_dir={run}", *SHORT, f"--glossary={folder / 'terms.tsv'}"]
    *translations, forced, end = launch("translate", *flags, stdin="\n".join([*LINES, TERM, ""])).split("\n")
    assert len(translations) == len(LINES) and translations[0] and not translations[1] and not end
    assert {"SIX", "FIVE"} & set(forced.split())
    launch("export", f"--model_dir={run}", f"--export_dir={export_dir}", *SHORT)
    requests = {"inputs": LINES}, {"inputs": [*LINES, TERM], "glossary": [[TERM, FORMS]]}
    plain, glossed = programs.predict(export_dir, *requests)
    assert plain["translation"] == translations and glossed["translation"] == [*translations, forced]
    assert glossed["missing_terms"] == [[], [], [], []]
