"""Flags of numbers and paths, and the kind of each flag of each program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from launch.flag_types import (
    ANY,
    FILE,
    FOLDER,
    NEW_FILE,
    NEW_FOLDER,
    DEFINE_multi_path,
    DEFINE_number,
    DEFINE_path,
    check_path,
)
from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeFloat, PositiveInt

ROOT = Path(__file__).parents[2]
# Flag names by kind; with the program if programs disagree. Add new flags here.
KINDS = {
    "bool": """
        alignments all bfloat16 ends_within_beam evaluate.lowercase final_marks in_place json json_input
        paper_bleu plan print rows sampling token_scores traces truecase tsv
    """,
    "comma separated list of strings": """
        allowed_hosts beam_pipeline_options checks directions gateways head length_penalties markup_attributes
        only symbols
    """,
    "multi path ANY": "ensemble extension",
    "multi path FILE": """
        prepare_data.train_source prepare_data.train_target prepare_data.valid_source prepare_data.valid_target
        test_source test_target
    """,
    "multi string": "exclude prepare_data.tag protect set",
    "multi string enum": "format kind style",
    "number float, a finite number above 0": """
        average_epochs link_gbytes max_length_ratio peak_tflops poll_seconds request_seconds temperature
    """,
    "number float, a finite number of at least 0": """
        coverage_penalty diversity_strength grace_seconds length_penalty load_retry_seconds max_length_factor
        patience
    """,
    "number float, a number from 0 to 1": "tolerance",
    "number float, a number from 0.01 to 1000000": "minutes",
    "number float, a number in (0, 1]": "top_p utilisation",
    "number int": "attention.seed distil.seed evaluate.seed export.seed translate.seed",
    "number int, a whole number from 0 to 65535": "grpc_port rest_port",
    "number int, a whole number in [0, 2 ** 32)": "prepare_data.seed",
    "number int, a whole number of at least 0": """
        cache_bytes devices extend_vocab max_num_load_retries min_length no_repeat_ngram_size pairs replicas
        source_vocab_size top_k
    """,
    "number int, a whole number of at least 1": """
        average_last beam_size chunk_lines held_out_pairs keep_alive_seconds layer length max_batch_bytes
        max_batch_size max_body_bytes max_connections max_stream_requests max_input_length max_length max_length_offset
        max_output_elements max_queue_bytes max_sentence_bytes max_sentences max_unsent_bytes model_parallel
        num_best num_groups num_streams processes seeds shard_pairs steps tokens_per_batch vocab_size
    """,
    "number int, a whole number of at least 2": "updates",
    "numbers, int, a whole number of at least 1": "averages beam_sizes",
    "path ANY": "attention.output checkpoint checkpoints convert.model_dir init_from train.data_dir",
    "path FILE": """
        api_key_file distil.source distil.target draw_trees.input evaluate.source fit.source fit.target glossary
        hypotheses model_config_file prove.input reference references score.source study.train_source
        study.train_target study.valid_source study.valid_target tls_certificate tls_key translate.input
        translation
    """,
    "path FOLDER": """
        attention.model_dir average_checkpoints.model_dir choose_search.data_dir choose_search.model_dir
        describe.model_dir distil.model_dir evaluate.data_dir evaluate.model_dir export.model_dir prove.model_dir
        score.model_dir serve.export_dir study.data_dir translate.model_dir vocab_from
    """,
    "path NEW_FILE": "output_source output_target score.output translate.output",
    "path NEW_FOLDER": """
        convert.output download_dir export.export_dir fit.output output_dir prepare_data.data_dir
        quickstart.data_dir quickstart.export_dir quickstart.model_dir study_dir train.model_dir
    """,
    "string": """
        attention.source attention.tag attention.target average_checkpoints.output beam_runner column
        convert.input corpus distil.tag evaluate.tag export.tag host licence name peak_preset preset query
        served_model serving shard source_language table target_column target_language task translate.tag winner
    """,
    "string enum": """
        case choose cluster compute_type device direction engine ensemble_mean from input_format
        length_normalization log_format markup on_error prepare_data.lowercase quantization scale split strategy
        to vocab_type weights
    """,
}
NUMBERS = {name: kind for kind, names in KINDS.items() if kind.startswith("number") for name in names.split()}


@pytest.fixture(scope="module")
def flag_listing():
    """The kinds of all flags, and the errors of numeric flags for some values, by program and name."""
    command = [sys.executable, "-m", "tests.launch.list_flags"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_kinds_of_flags(flag_listing):
    expected = {name: kind for kind, names in KINDS.items() for name in names.split()}
    unused = set(expected)
    for flag, kind in flag_listing["kinds"].items():
        program, name = flag.split()
        key = f"{program}.{name}" if f"{program}.{name}" in expected else name
        assert expected.get(key) == kind, f"--{name} of launch.{program} is of kind {kind!r}"
        unused.discard(key)
    assert not unused


def test_flags_are_parsed_without_tensorflow(flag_listing):
    assert not flag_listing["tensorflow"]


@pytest.mark.parametrize("flag", NUMBERS)
def test_invalid_numbers_are_rejected(flag_listing, flag):
    kind, name = NUMBERS[flag], flag.rpartition(".")[2]
    invalid = {"nan", "inf", "-inf", "1e999", "many"} | (set() if "numbers" in kind else {""})
    if kind != "number int":
        invalid.add("-1")
    if any(words in kind for words in ("at least 1", "at least 2", "above 0", "(0", "0.01")):
        invalid.add("0")
    same_name = [key for key in flag_listing["errors"] if key.endswith(f" {name}")]
    for errors in (flag_listing["errors"][key] for key in same_name if flag_listing["kinds"][key] == kind):
        assert {value for value, error in errors.items() if error} == invalid
        assert all(error.startswith(f"--{name} must be ") for error in errors.values() if error)


def test_parsing_of_numbers_and_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/of/me")
    values = flags.FlagValues()
    holders = [
        DEFINE_number("count", 3, "", PositiveInt, flag_values=values),
        DEFINE_number("counts", "1,2", "", tuple[PositiveInt, ...], flag_values=values),
        DEFINE_number("rate", None, "", NonNegativeFloat, flag_values=values),
        DEFINE_path("input", None, "", FILE, flag_values=values),
        DEFINE_path("checkpoints", None, "", ANY, is_list=True, flag_values=values),
        DEFINE_multi_path("ensemble", "", ANY, flag_values=values),
    ]
    values(["program"])
    assert [holder.value for holder in holders] == [3, (1, 2), None, None, None, []]
    values(
        [
            "program",
            "--count=4",
            "--counts=5, 6",
            "--rate=0",
            "--input=~/in",
            "--checkpoints=best, ~/x",
            "--ensemble=~/a@1",
        ]
    )
    expected = [4, (5, 6), 0.0, "/of/me/in", ["best", "/of/me/x"], ["/of/me/a@1"]]
    assert [holder.value for holder in holders] == expected
    assert values["count"].flag_type() == "int" and values["counts"].flag_type() == "tuple"


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        (FILE, "file", None),
        (FILE, os.devnull, None),
        (FILE, "none", "--flag={path}: no such file"),
        (FILE, "folder", "--flag={path} is a folder; give a file"),
        (FOLDER, "folder", None),
        (FOLDER, "none", "--flag={path}: no such folder"),
        (FOLDER, "file", "--flag={path} is a file; give a folder"),
        (NEW_FILE, "none", None),
        (NEW_FILE, "file", None),
        (NEW_FILE, "folder", "--flag={path} is a folder; give a file"),
        (NEW_FILE, "none/out", "--flag={path}: no such folder: {folder}"),
        (NEW_FILE, "file/out", "--flag={path}: no such folder: {folder}"),
        (NEW_FOLDER, "none", None),
        (NEW_FOLDER, "folder", None),
        (NEW_FOLDER, "file", "--flag={path} is a file; give a folder"),
        (ANY, "none", None),
    ],
)
def test_kinds_of_paths(tmp_path, kind, path, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    path = str(tmp_path / path)
    if message is None:
        check_path("flag", kind, path)
        return
    with pytest.raises(InputError) as error:
        check_path("flag", kind, path)
    assert str(error.value) == message.format(path=path, folder=os.path.dirname(path))


def test_new_files_in_the_current_folder():
    check_path("flag", NEW_FILE, "a file that does not exist")
