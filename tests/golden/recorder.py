"""Writes the golden files: results that later code must reproduce.

python tests/golden/recorder.py tests/golden

This command trains a small run with the project's programs on artificial sentences, exports it, and records the names
of weights, the results of every search and the losses of a resumed training. Run it again only for an intended change.
"""

import dataclasses
import json
import lzma
import os
import pathlib
import random
import shutil
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

import tensorflow as tf

from t2t_keras.config import DecodeConfig, TransformerConfig
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from tests import programs

ROOT = pathlib.Path(__file__).parents[2]

# Names of weights: a small model for each kind of architecture.
SMALL = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2, "vocab_size": 50}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "t2t": {"norm_position": "pre", "position_encoding": "sinusoidal_halves", "use_attention_bias": False},
    "pre_norm": {"norm_position": "pre"},
    "learned_positions": {"position_encoding": "learned"},
    "untied": {"tie_embeddings": False},
    "narrow_keys": {"d_key": 4, "d_value": 6},
}

# Searches: the search settings, whether two checkpoints form an ensemble, and the options of each request.
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"decode": {"beam_size": 1}},
    "beam": {"decode": {"beam_size": 4}},
    "patience": {"decode": {"beam_size": 4, "patience": 1.0}},
    "average_length": {"decode": {"beam_size": 4, "length_normalization": "average"}},
    "no_normalization": {"decode": {"beam_size": 4, "length_normalization": "none", "min_length": 4}},
    "coverage": {"decode": {"beam_size": 4, "coverage_penalty": 0.2}},
    "no_repeat": {"decode": {"beam_size": 4, "no_repeat_ngram_size": 2}},
    "diverse": {"decode": {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5}},
    "sampling": {"decode": {"beam_size": 3, "sampling": True, "seed": 7}},
    "top_k": {"decode": {"beam_size": 2, "sampling": True, "top_k": 3, "temperature": 1.5}},
    "top_p": {"decode": {"beam_size": 2, "sampling": True, "top_p": 0.9}},
    "prefix": {"decode": {"beam_size": 4}, "request": {"prefix": "no"}},
    "constraints": {"decode": {"beam_size": 4}, "request": {"constraints": ["tam"]}},
    "excluded": {"decode": {"beam_size": 4}, "request": {"excluded": ["tac"]}},
    "ensemble": {"decode": {"beam_size": 4}, "ensemble": True},
    "ensemble_coverage": {"decode": {"beam_size": 2, "coverage_penalty": 0.2}, "ensemble": True},
}

_DETERMINERS, _ADJECTIVES = ("the", "a", "every", "no"), ("big", "red", "old", "quick", "quiet", "")
_NOUNS, _VERBS = ("cat", "dog", "mat", "boat", "house", "bird"), ("sees", "likes", "finds", "sits on", "leaves")
_TRAINING = {
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 2,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_heads": 2,
    "train.tokens_per_batch": 512,
    "train.warmup_steps": 200,
    "train.checkpoint_steps": 300,
    "train.validation_steps": 300,
    "train.log_steps": 1,
    "train.learning_rate_scale": 1.0,
}
STEPS, MORE_STEPS = 600, 604
FIRST, SECOND = 300, 600  # the checkpoints of the ensemble


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Returns sentences of a small grammar, paired with sentences whose words are reordered and spelled backwards."""
    numbers = random.Random(seed)

    def phrase() -> str:
        words = [numbers.choice(group) for group in (_DETERMINERS, _ADJECTIVES, _NOUNS)]
        return " ".join(word for word in words if word)

    pairs = []
    for _ in range(count):
        source = f"{phrase()} {numbers.choice(_VERBS)} {phrase()}"
        pairs.append((source, " ".join(word[::-1] for word in reversed(source.split()))))
    return pairs


def requests(options: dict[str, Any]) -> list[Request]:
    """Returns the requests of each search: lines like those of training, and unusual ones."""
    texts = [source for source, _ in sentences(6, seed=99)]
    return [Request(text, **options) for text in [*texts, "cat", "the the the dog dog"]]


def weight_shapes(kind: str) -> list[list[Any]]:
    """Returns names and shapes of a kind of model, in order."""
    model = Transformer(TransformerConfig(**{**SMALL, **KINDS[kind]}))
    model.build()
    variables = zip(weight_names(model), model.trainable_variables, strict=True)
    return [[name, list(variable.shape)] for name, variable in variables]


def search_results(folder: pathlib.Path, name: str) -> list[list[dict[str, Any]]]:
    """Returns the n-best list of each request for a search with the golden run."""
    case = SEARCHES[name]
    config = DecodeConfig(**case["decode"])
    if case.get("ensemble"):
        members = [(folder / "run", str(step)) for step in (FIRST, SECOND)]
        translator = Translator.load_ensemble(members, settings=config)
    else:
        translator = Translator.load(folder / "run", settings=config)
    nbest_lists = translator.translate_nbest(requests(case.get("request", {})), config.beam_size)
    return [[translation_values(translation) for translation in nbest] for nbest in nbest_lists]


def translation_values(translation: Any) -> dict[str, Any]:
    """Returns a translation as JSON values."""
    values = dataclasses.asdict(translation)
    return {name: values[name] for name in ("text", "score", "log_prob", "token_ids")}


def losses(model_dir: pathlib.Path) -> list[list[float]]:
    """Returns step and loss of each training record."""
    lines = map(json.loads, (model_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [[line["step"], line["loss"]] for line in lines if line["kind"] == "train"]


def launch(program: str, *flags: str, cwd: pathlib.Path) -> None:
    """Runs one of the project's programs."""
    command = ["-m", f"launch.{program}", *flags]
    done = programs.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr.decode()[-2000:]}")


def resume(model_dir: pathlib.Path, data_dir: pathlib.Path) -> None:
    """Trains the run a few steps further."""
    flags = [f"--data_dir={data_dir}", f"--model_dir={model_dir}", "--strategy=cpu"]
    launch("train", *flags, "--set", f"train.max_steps={MORE_STEPS}", cwd=model_dir.parent)


def prepare(data_dir: pathlib.Path) -> None:
    """Prepares the artificial text."""
    texts = data_dir.parent / "texts"
    texts.mkdir()
    for split, count, seed in (("train", 2000, 1), ("valid", 50, 2)):
        for side, lines in zip(("source", "target"), zip(*sentences(count, seed), strict=True), strict=True):
            (texts / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [f"--{split}_{side}={texts / f'{split}.{side}'}" for split in ("train", "valid") for side in _SIDES]
    launch("prepare_data", "--corpus=files", "--vocab_size=320", f"--data_dir={data_dir}", *files, cwd=data_dir.parent)


_SIDES = ("source", "target")


def main(folder: pathlib.Path) -> None:
    """Records everything."""
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        prepare(work / "data")
        flags = [f"--set={name}={value}" for name, value in {**_TRAINING, "train.max_steps": STEPS}.items()]
        launch(
            "train",
            "--preset=base",
            f"--data_dir={work / 'data'}",
            f"--model_dir={work / 'run'}",
            "--strategy=cpu",
            *flags,
            cwd=work,
        )
        keep_run(work / "run", folder / "run")
        launch("export", f"--model_dir={work / 'run'}", f"--export_dir={work / 'export'}", cwd=work)
        keep_export(work / "export" / "1", folder / "export")
        resume(work / "run", work / "data")
        write(folder / "losses.json", losses(work / "run")[STEPS:])
    write(folder / "weights.json", {kind: weight_shapes(kind) for kind in KINDS})
    write(folder / "searches.json", {name: search_results(folder, name) for name in SEARCHES})


def keep_run(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the parts of a run that later code must be able to read."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps({**config, "data_dir": "data"}, indent=2) + "\n", encoding="utf-8")
    shutil.copy(source / "vocab.model", target)
    shutil.copytree(source / "checkpoints", target / "checkpoints")
    (target / "checkpoints" / f"step_{FIRST:08}" / "optimizer.npz").unlink()  # not needed for translation


def keep_export(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies an export and compresses its graph."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("saved_model.pb"))
    (target / "saved_model.pb.xz").write_bytes(lzma.compress((source / "saved_model.pb").read_bytes(), preset=9))


def unpacked_export(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Restores the golden export."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("saved_model.pb.xz"))
    (target / "saved_model.pb").write_bytes(lzma.decompress((source / "saved_model.pb.xz").read_bytes()))
    return target


def write(path: pathlib.Path, values: Any) -> None:
    """Writes values as JSON."""
    path.write_text(json.dumps(values, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    tf.get_logger().setLevel("ERROR")
    main(pathlib.Path(sys.argv[1]).resolve())
