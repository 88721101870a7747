"""beam.sh runs prepare_data with options of Apache Beam."""

import importlib.util
import shlex

import pytest

from tests.launch.cluster.stand_ins import environment, lines, run, write_executable

pytestmark = pytest.mark.integration

SETTINGS = {"WORKERS": 3, "PROJECT": "mine", "BUCKET": "bucket", "IMAGE": "registry/t2t"}
FLAGS = ["--train_source=a b.en", "--train_target=it's.de", "--data_dir=/shared/mine"]
# The options as Apache Beam parses them.
EXTERNAL = {"environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
OPTIONS = {
    "flink": {"flink_master": "localhost:8081", "parallelism": 3, **EXTERNAL},
    "spark": {"spark_master_url": "spark://localhost:7077", "sdk_worker_parallelism": "3", **EXTERNAL},
    "dataflow": {
        "project": "mine",
        "region": "us-central1",
        "temp_location": "gs://bucket/tmp",
        "sdk_container_image": "registry/t2t",
        "sdk_location": "container",
        "num_workers": 3,
        "autoscaling_algorithm": "NONE",
        "machine_type": "n2-standard-4",
    },
}


def rendered_words(tmp_path, runner: str) -> list[str]:
    result = run("beam.sh", runner, *FLAGS, env=environment(tmp_path, DRY_RUN=1, **SETTINGS))
    assert result.returncode == 0, result.stderr
    return shlex.split(result.stdout)


def options(words: list[str]) -> list[str]:
    (flag,) = [word for word in words if word.startswith("--beam_pipeline_options=")]
    return [f"--{option}" for option in flag.partition("=")[2].split(",")]


@pytest.mark.parametrize("runner", OPTIONS)
def test_runner_and_flags(tmp_path, runner):
    words = rendered_words(tmp_path, runner)
    name = f"--beam_runner={runner.capitalize()}Runner"
    assert words[:4] == [".venv/bin/python", "-m", "launch.prepare_data", name] and words[-3:] == FLAGS
    option_values = dict(option.removeprefix("--").split("=", 1) for option in options(words))
    assert option_values == {name: str(value) for name, value in OPTIONS[runner].items()}


@pytest.mark.parametrize("runner", OPTIONS)
@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is None, reason="needs the extra beam")
def test_beam_accepts_the_options(tmp_path, runner):
    from apache_beam.options import pipeline_options

    words = options(rendered_words(tmp_path, runner))
    parsed = pipeline_options.PipelineOptions(words).get_all_options(drop_default=True)
    assert {name: parsed[name] for name in OPTIONS[runner]} == OPTIONS[runner]
    # Apache Beam drops unknown options with a warning.
    parser = pipeline_options._BeamArgumentParser(allow_abbrev=False)
    for group in pipeline_options.PipelineOptions.__subclasses__():
        group._add_argparse_args(parser)
    assert parser.parse_known_args(words)[1] == []


def test_the_dry_run_prints_the_command(tmp_path):
    python = write_executable(tmp_path / "python", f'printf "%s\\n" "$@" > {tmp_path}/arguments; exit 3')
    result = run("beam.sh", "flink", *FLAGS, env=environment(tmp_path, PYTHON=python, **SETTINGS))
    assert result.returncode == 3
    assert lines(tmp_path / "arguments") == rendered_words(tmp_path, "flink")[1:]
