"""Every command of every document and recipe has flags that its program has, with values that it takes."""

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
# `python -m launch.train --flags`, `t2t-train --flags`, and recipes, which take the flags of launch.train or, if their
# name ends in "_study", those of launch.study.
COMMAND = re.compile(
    r"(?:python -m (?:t2t_keras\.)?launch\.(?P<program>\w+)|\b(?P<installed>t2t-\w+)"
    rf"|launch/cluster/(?P<recipe>{'|'.join(RECIPES)})\.sh(?: train)?)(?P<arguments>(?: (?:\\\n|[^\n`])*)?)"
)
# What may follow the arguments.
END = re.compile(r"""'[^']*'|"[^"]*"|(?P<end>[|<>&;#)]|\s-->|\s{3,})""")


def documents() -> list[pathlib.Path]:
    found = [path for folder in (ROOT, ROOT / ".github", ROOT / "docs") for path in folder.glob("*.md")]
    for folder in ("launch", "benchmarks"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".sh", ".yaml")]
    return sorted(found)


def prose(path: pathlib.Path) -> str:
    """A document, or what a shell script says about itself: what it runs is seen in its dry run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".sh":
        lines = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return "\n".join(lines)


def installed_programs() -> dict[str, str]:
    """The commands of pyproject.toml and the programs that they are."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    return {name: function.removeprefix("t2t_keras.launch.").removesuffix(":run") for name, function in scripts.items()}


def program_of(recipe: str) -> str:
    return "study" if recipe.endswith("_study") else "train"


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Programs and their arguments, as far as a text has commands with arguments in it."""
    found = []
    for match in COMMAND.finditer(text):
        program = match["program"] or installed_programs().get(match["installed"] or "", "")
        program = program_of(match["recipe"]) if match["recipe"] else program
        line = re.sub(r"\\\n\s*", "", match["arguments"])
        line = line[: next((found.start() for found in END.finditer(line) if found["end"]), None)]
        words = shlex.split(line) if program in PROGRAMS and "--" in line else []
        if words and words[0].startswith("--") and "--help" not in words:
            found.append((program, [word for word in words if word != "..."]))
    return found


def parsed(lines: list[tuple[str, list[str]]]) -> list[str | None]:
    done = programs.run(
        [HERE / "parse_commands.py"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def dry_run(recipe: str, *arguments: str) -> str:
    settings = {"DRY_RUN": "1", "HOSTS": "one two", "PROJECT": "mine"}
    command = ["bash", f"{ROOT}/launch/cluster/{recipe}.sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(recipe: str, *arguments: str) -> tuple[str, list[str]]:
    """The command that a recipe makes of some flags, as its workers get it."""
    text = dry_run(recipe, *(["train"] if recipe == "tpu_vm" else []), *arguments)
    if recipe.startswith("kube"):
        words = [line.strip() for line in text.splitlines() if line.strip().startswith("- '")]
        words = [word.removeprefix("- '").removesuffix("'").replace("''", "'") for word in words]
    else:
        words = shlex.split(text)
        if not recipe.startswith("slurm"):  # one word is what the remote shell gets
            words = shlex.split(next(word for word in words if "launch.train" in word))
    words = words[words.index(f"launch.{program_of(recipe)}") + 1 :]
    return program_of(recipe), words[: words.index("&")] if "&" in words else words


def on_ray(backend: str) -> list[str]:
    """The flags of a worker on Ray."""
    program = ROOT / "launch" / "cluster" / "ray_train.py"
    # Asked for by its flag, and as the scripts are.
    flag, env = ([], {"DRY_RUN": "1"}) if backend == "jax" else (["--dry_run"], {})
    command = [sys.executable, str(program), *flag, f"--backend={backend}", "--", *flags_for("ray_train")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env})
    words = shlex.split(done.stdout)
    assert words[0] == f"KERAS_BACKEND={backend}"
    return words[words.index("launch.train") + 1 :]


def on_beam(runner: str) -> list[str]:
    """The flags of a preparation on Apache Beam."""
    env = {**os.environ, "DRY_RUN": "1", "PROJECT": "mine", "BUCKET": "mine", "IMAGE": "mine"}
    arguments = [runner, "--train_source=a", "--train_target=it's", "--data_dir=a b"]
    command = ["bash", f"{ROOT}/launch/cluster/beam.sh", *arguments]
    words = shlex.split(subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout)
    return words[words.index("launch.prepare_data") + 1 :]


def flags_for(recipe: str) -> tuple[str, ...]:
    run = ("--model_dir=/t2t/it's", "--preset=big")
    only = ("--study_dir=it's", "--table=3") if program_of(recipe) == "study" else run
    return ("--data_dir=/t2t/a b", *only, "--set", "train.checkpoint_minutes=10")


@pytest.fixture(scope="module")
def complaints() -> dict[str, list[str]]:
    """What the programs say against the commands of each document, and of each recipe as rendered."""
    lines = [(path.relative_to(ROOT).as_posix(), command) for path in documents() for command in commands(prose(path))]
    lines += [(f"dry run of {recipe}", rendered(recipe, *flags_for(recipe))) for recipe in RECIPES]
    lines += [(f"dry run of ray_train, {backend}", ("train", on_ray(backend))) for backend in ("tensorflow", "jax")]
    lines += [
        (f"dry run of beam, {runner}", ("prepare_data", on_beam(runner))) for runner in ("flink", "spark", "dataflow")
    ]
    lines += [("wrong flag", ("train", ["--model_dir=x", "--depth=3"]))]
    lines += [("wrong setting", ("train", ["--model_dir=x", "--preset=base", "--set=train.depth=3"]))]
    lines += [("wrong value", ("train", ["--model_dir=x", "--strategy=cuda"]))]
    lines += [("right", ("train", ["--model_dir=x", "--preset=base", "--set=train.max_steps=3"]))]
    found: dict[str, list[str]] = {}
    for (name, (program, words)), said in zip(lines, parsed([command for _, command in lines]), strict=True):
        found.setdefault(name, [])
        if said:
            found[name].append(f"launch.{program} {shlex.join(words)}: {said}")
    return found


def test_every_command_has_flags_of_its_program(complaints):
    wrong = {name: said for name, said in complaints.items() if said and not name.startswith("wrong ")}
    assert not wrong


def test_what_is_wrong_is_found(complaints):
    assert "depth" in complaints["wrong flag"][0]
    assert "train.depth" in complaints["wrong setting"][0]
    assert "cuda" in complaints["wrong value"][0]
    assert complaints["right"] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_flags_arrive_as_they_were_given(recipe):
    flags = flags_for(recipe)
    _, words = rendered(recipe, *flags)
    assert words[-len(flags) :] == list(flags)
