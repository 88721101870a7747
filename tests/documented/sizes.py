"""Reduces the sizes in the documented commands, and lists commands that no test runs.

The rows of each table are applied in order. The first column is a regular expression, which is matched with
"page: command".
"""

import importlib.util
import re

from .pages import Command

SECONDS = 1200  # a command that takes longer hangs, even on a busy machine

_TRANSFORMERS = "tiny|base|big|parsing_small|gated_tiny"
_LAYERS = "--set model.num_encoder_layers=1 --set model.num_decoder_layers=1"
_TRAIN = "--set train.max_steps=2 --set train.checkpoint_steps=1 --set train.tokens_per_batch=400"
_SLOW = "--set train.max_steps=3 --set train.learning_rate_scale=0.01"
_RECIPES = "--set data.vocab_size=320 --set train.tokens_per_batch=400"
_FEW_LAYERS = "--set model.num_encoder_layers=4"

# Flags to append to matching commands. Later rows override earlier rows.
APPENDED_FLAGS = (
    (r"launch\.prepare_data (?!.*--vocab_(from|type))", "--vocab_size=320"),
    (r"launch\.(train|study) ", "--set train.warmup_steps=4"),
    (r"launch\.train ", f"{_TRAIN} --set train.validation_sentences=0"),
    (r"launch\.train .*--set train.validation_sentences=", "--set train.validation_sentences=2"),
    (rf"launch\.train .*--preset=({_TRANSFORMERS})\b", f"{_LAYERS} --set model.d_model=32 --set model.d_ff=64"),
    (r"launch\.train .*--preset=(base|big)\b", "--set model.num_heads=4"),
    (
        r"tasks_measured: .*launch\.train .*--model_dir=runs/tatoeba ",
        _FEW_LAYERS,
    ),  # attention.md draws the fourth layer
    # With three small updates, the last one is the best, so that it differs from the first and the second.
    (r"training: .*--model_dir=runs/mine .*max_minutes", _SLOW),
    (r"--strategy=mirrored", "--replicas=2"),  # launch.train requires this without a GPU
    (r"launch\.train .*--model_parallel", "--set train.max_steps=4"),  # resumes the run of the previous command
    (r"launch\.prove ", f"--updates=2 --peak_preset=tiny {_LAYERS} --set model.d_model=32 --set model.d_ff=64"),
    (r"launch\.(fit|quickstart) ", "--minutes=0.05"),
    (r"launch\.fit ", f"--vocab_size=320 --set train.max_steps=9 {_LAYERS}"),
    (r"launch\.study .*--table=(?!.*--plan)", "--steps=2 --seeds=1 --set train.tokens_per_batch=400"),
    (r"launch\.study .*--set train\.max_steps=", "--set train.max_steps=2"),  # overrides --steps
    (r"launch\.study .*--table=(3|4|attention) (?!.*--plan)", _LAYERS),
    (r"launch\.study .*--table=1 ", "--only=self_attention"),
    (r"launch\.study .*--table=2 (?!.*--(plan|only))", "--only=transformer"),
    (r"launch\.study .*--table=2_equal_cost ", "--only=transformer_tenth"),
    (r"launch\.study .*--table=(3|attention) (?!.*--plan)", "--only=base"),
    (r"launch\.study .*--table=4 ", "--only=parser"),
    (r"launch\.study .*--(table=recipes|winner)", f"{_RECIPES} {_LAYERS}"),
    (r"launch\.study .*--table=recipes", "--only=base"),
    (r"launch\.study .*--winner", "--only=drop"),
    (r"benchmarks\.train_step (?!.*--engines)(?!.*--preset=(rnn|conv)_tiny)", "--engines=ours"),
    (r"benchmarks\.train_step ", "--tokens_per_batch=400 --batches=1 --rounds=1"),
    (r"benchmarks\.attention_window ", "--lengths=64 --positions=64 --turns=1 --d_model=32"),
    (r"benchmarks\.experts ", "--num_experts=2 --experts_per_token=1 --tokens=200 --steps=1 --rounds=1"),
    (
        r"benchmarks\.decode ",
        "--beam_sizes=2 --sentences=4 --rounds=1 --runs=1 --tries=1 --latency_sentences=1 --output_tokens=5",
    ),
    (r"benchmarks\.start ", "--rounds=1 --replicas=1 --peers="),
    (r"benchmarks\.loss_memory ", "--tokens=200 --vocab_sizes=100"),
    (r"benchmarks\.pipeline ", "--seconds=0.1"),
    (r"benchmarks\.checkpoint_stall ", "--preset=tiny --tokens=100 --rounds=1"),
    (r"benchmarks\.replicas ", "--steps=1 --rounds=1 --replicas=1,2 --workers=2 --tokens_per_batch=400"),
    (r"benchmarks\.plan --pairs", "--pairs=500,1000 --vocab_size=300"),
    (r"benchmarks\.plan --repeated", "--repeated=500000 --vocab_size=300"),
    (r"benchmarks\.serving ", "--sentences=4 --clients=2 --rounds=1 --seconds=1"),
    (r"launch\.serve ", "--rest_port=0 --grpc_port=0"),
    (r"tensorboard ", "--port=0"),
)

# Replacements of numbers that depend on the training.
REPLACED = (
    (r"--checkpoints=1000,1200\b", "--checkpoints=1,2"),
    (r"--averages=5,10\b", "--averages=1,2"),
    (r"--checkpoint=8000\b", "--checkpoint=2"),
    (r"(--checkpoint=|@)6200\b", r"\g<1>1"),
)

NOT_RUN = (
    (r": make ", "runs tests, or creates the environment or the site"),
    (r": (pip install|source) ", "installs packages, which needs an index"),
    (r": sbatch ", "needs Slurm; tests/launch/cluster/test_recipes.py runs the script with stand-ins"),
    (r"benchmarks\.(soak|export|serving .*--faults)", "takes minutes for any size"),
    (r"benchmarks\.(train_step|decode) .*--preset=base", "takes minutes; the same command with the preset tiny runs"),
    (r"--beam_runner", "needs apache-beam; tests/data/test_beam.py runs it if the package is installed"),
)

# Optional packages that `make venv` does not install.
PACKAGES = (
    (r"KERAS_BACKEND=jax", "jax"),
    (r"--(to|engine|engines)=ctranslate2|--to=argos|benchmarks\.(serving|decode) ", "ctranslate2"),
    (r"--to=onnx|multi30k_onnx/", "onnxruntime"),
    (r"--to=onnx", "tf2onnx"),
    (r"hf://", "huggingface_hub"),
    (r"s3://", "s3fs"),
    (r"benchmarks\.text_classifier", "sklearn"),
    (r"--input=\S+\.md ", "markdown_it"),
)


def missing_package(command: Command) -> str | None:
    """Returns a package that a command needs and that is not installed."""
    needed = [package for pattern, package in PACKAGES if re.search(pattern, str(command))]
    return next((package for package in needed if importlib.util.find_spec(package) is None), None)


def reason_not_to_run(command: Command) -> str | None:
    """Returns the reason why no test runs a command, or None."""
    return next((reason for pattern, reason in NOT_RUN if re.search(pattern, str(command))), None)


def reduce_sizes(command: Command) -> Command:
    """Returns the command with reduced sizes."""
    text, more = command.text, []
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    for pattern, words in APPENDED_FLAGS:
        if re.search(pattern, f"{command} "):
            more.append(words)
    return with_words(Command(command.page, text), *more)


def with_words(command: Command, *words: str) -> Command:
    """Returns the command with more words before its redirections."""
    place = re.search(r" [<>|#] |$", command.text)
    assert place is not None
    parts = (command.text[: place.start()], *words, command.text[place.start() :].strip())
    return Command(command.page, " ".join(filter(None, parts)))
