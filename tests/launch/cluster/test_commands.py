"""The commands in documents and recipes have valid flags with valid values."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from tests import programs

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
HAS_COMMAND = re.compile(r"^(def run\(|run = )", re.MULTILINE)
PROGRAMS = {path.stem for path in (ROOT / "launch").glob("*.py") if HAS_COMMAND.search(path.read_text("utf-8"))}
RECIPES = ("slurm", "slurm_study", "kubernetes", "kubeflow", "tpu_vm", "ssh")
# Matches `python -m launch.train --flags`, `t2t-train --flags`, and recipes, which pass flags to launch.train or, if
# their name ends in "_study", to launch.study.
COMMAND = re.compile(
    r"(?:python -m (?:t2t_keras\.)?launch\.(?P<program>\w+)|\b(?P<installed>t2t-\w+)"
    rf"|launch/cluster/(?P<recipe>{'|'.join(RECIPES)})\.sh(?: train)?)(?P<arguments>(?: (?:\\\n|[^\n`])*)?)"
)
# Matches the end of a command's arguments.
END = re.compile(r"""'[^']*'|"[^"]*"|(?P<end>[|<>&;#)]|\s-->|\s{3,})""")


def documents() -> list[pathlib.Path]:
    paths = [path for folder in (ROOT, ROOT / ".github", ROOT / "docs") for path in folder.glob("*.md")]
    for folder in ("launch", "benchmarks"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".sh", ".yaml")]
    return sorted(paths)


def read_text(path: pathlib.Path) -> str:
    """The text of a document, or the comments of a shell script, whose commands are tested with a dry run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".sh":
        lines = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return "\n".join(lines)


def installed_programs() -> dict[str, str]:
    """Program by installed command, from pyproject.toml."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    return {name: function.removeprefix("t2t_keras.launch.").removesuffix(":run") for name, function in scripts.items()}


def program_of(recipe: str) -> str:
    return "study" if recipe.endswith("_study") else "train"


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Programs and their arguments, from all commands with arguments in a text."""
    result = []
    for match in COMMAND.finditer(text):
        program = match["program"] or installed_programs().get(match["installed"] or "", "")
        program = program_of(match["recipe"]) if match["recipe"] else program
        line = re.sub(r"\\\n\s*", "", match["arguments"])
        line = line[: next((end.start() for end in END.finditer(line) if end["end"]), None)]
        words = shlex.split(line) if program in PROGRAMS and "--" in line else []
        if words and words[0].startswith("--") and "--help" not in words:
            result.append((program, [word for word in words if word != "..."]))
    return result


def find_errors(lines: list[tuple[str, list[str]]]) -> list[str | None]:
    result = programs.run(
        [HERE / "parse_commands.py"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def dry_run(recipe: str, *arguments: str) -> str:
    settings = {"DRY_RUN": "1", "HOSTS": "one two", "PROJECT": "mine"}
    command = ["bash", f"{ROOT}/launch/cluster/{recipe}.sh", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert result.returncode == 0, result.stderr
    return result.stdout


def rendered_command(recipe: str, *arguments: str) -> tuple[str, list[str]]:
    """The program and the flags that the workers of a recipe receive."""
    text = dry_run(recipe, *(["train"] if recipe == "tpu_vm" else []), *arguments)
    if recipe.startswith("kube"):
        words = [line.strip() for line in text.splitlines() if line.strip().startswith("- '")]
        words = [word.removeprefix("- '").removesuffix("'").replace("''", "'") for word in words]
    else:
        words = shlex.split(text)
        if not recipe.startswith("slurm"):  # the remote shell receives one word
            words = shlex.split(next(word for word in words if "launch.train" in word))
    words = words[words.index(f"launch.{program_of(recipe)}") + 1 :]
    return program_of(recipe), words[: words.index("&")] if "&" in words else words


def ray_flags(backend: str) -> list[str]:
    program = ROOT / "launch" / "cluster" / "ray_train.py"
    # The flag and the environment variable both request a dry run.
    flag, env = ([], {"DRY_RUN": "1"}) if backend == "jax" else (["--dry_run"], {})
    command = [sys.executable, str(program), *flag, f"--backend={backend}", "--", *flags_for("ray_train")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env})
    words = shlex.split(result.stdout)
    assert words[0] == f"KERAS_BACKEND={backend}"
    return words[words.index("launch.train") + 1 :]


def beam_flags(runner: str) -> list[str]:
    env = {**os.environ, "DRY_RUN": "1", "PROJECT": "mine", "BUCKET": "mine", "IMAGE": "mine"}
    arguments = [runner, "--train_source=a", "--train_target=it's", "--data_dir=a b"]
    command = ["bash", f"{ROOT}/launch/cluster/beam.sh", *arguments]
    words = shlex.split(subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout)
    return words[words.index("launch.prepare_data") + 1 :]


def flags_for(recipe: str) -> tuple[str, ...]:
    run = ("--model_dir=/t2t/it's", "--preset=big")
    directories = ("--study_dir=it's", "--table=3") if program_of(recipe) == "study" else run
    return ("--data_dir=/t2t/a b", *directories, "--set", "train.checkpoint_minutes=10")


@pytest.fixture(scope="module")
def command_errors() -> dict[str, list[str]]:
    """The errors of the programs for the commands of each document and each recipe, by its name."""
    lines = [
        (path.relative_to(ROOT).as_posix(), command) for path in documents() for command in commands(read_text(path))
    ]
    lines += [(f"dry run of {recipe}", rendered_command(recipe, *flags_for(recipe))) for recipe in RECIPES]
    lines += [(f"dry run of ray_train, {backend}", ("train", ray_flags(backend))) for backend in ("tensorflow", "jax")]
    lines += [
        (f"dry run of beam, {runner}", ("prepare_data", beam_flags(runner)))
        for runner in ("flink", "spark", "dataflow")
    ]
    lines += [("unknown flag", ("train", ["--model_dir=x", "--depth=3"]))]
    lines += [("unknown setting", ("train", ["--model_dir=x", "--preset=base", "--set=train.depth=3"]))]
    lines += [("invalid value", ("train", ["--model_dir=x", "--strategy=cuda"]))]
    lines += [("valid", ("train", ["--model_dir=x", "--preset=base", "--set=train.max_steps=3"]))]
    errors: dict[str, list[str]] = {}
    for (name, (program, words)), error in zip(lines, find_errors([command for _, command in lines]), strict=True):
        errors.setdefault(name, [])
        if error:
            errors[name].append(f"launch.{program} {shlex.join(words)}: {error}")
    return errors


def test_documented_commands_are_valid(command_errors):
    examples = ("unknown flag", "unknown setting", "invalid value")
    assert not {name: errors for name, errors in command_errors.items() if errors and name not in examples}


def test_invalid_commands_are_detected(command_errors):
    assert "depth" in command_errors["unknown flag"][0]
    assert "train.depth" in command_errors["unknown setting"][0]
    assert "cuda" in command_errors["invalid value"][0]
    assert command_errors["valid"] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_pass_flags_unchanged(recipe):
    flags = flags_for(recipe)
    _, words = rendered_command(recipe, *flags)
    assert words[-len(flags) :] == list(flags)
