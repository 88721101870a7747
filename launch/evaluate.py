"""Translates a test set, scores it (BLEU, chrF, TER, perplexity), and writes hypotheses and scores to --output_dir.

Models of other tasks get the scores of their task. With --hypotheses, outputs in a file are scored without a model.

Examples:
    python -m launch.evaluate --model_dir=runs/mine --split=test
    python -m launch.evaluate --model_dir=runs/mine --source=t.en --reference=t.de --beam_size=5 --paper_bleu
    python -m launch.evaluate --task=parsing --hypotheses=parsed.mrg --references=gold.mrg
"""

import dataclasses
import errno
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any

import tqdm
from absl import flags

from t2t_keras.data import readers
from t2t_keras.data.prepare import PreparedData
from t2t_keras.data.sources.corpora_files import read_lines
from t2t_keras.errors import InputError, named
from t2t_keras.machine import remote
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.score import Score
from t2t_keras.tasks.task import ScoringSettings, Task
from t2t_keras.text.language_codes import Languages, language_of_name
from t2t_keras.text.languages import language_of

from . import program, remote_paths
from .flag_groups import decoding_flags, engine_flags, model_flags
from .flag_types import FILE, FOLDER, NEW_FOLDER, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.evaluation import Evaluation
    from t2t_keras.inference.translator import Translator

_SPLIT = flags.DEFINE_enum("split", None, ["valid", "test"], "The split of the prepared data to translate.")
_DATA_DIR = DEFINE_path("data_dir", None, "Prepared data for --split; default: the training data of the run.", FOLDER)
_SOURCE = DEFINE_path(
    "source", None, f"Instead of --split: UTF-8 text, or both sides in one file ({readers.WITH_BOTH_SIDES}).", FILE
)
_REFERENCE = DEFINE_path("reference", None, "With --source: its human translation, line by line.", FILE)
_TASK = flags.DEFINE_string("task", None, "With --hypotheses: the task whose outputs they are.")
_HYPOTHESES = DEFINE_path("hypotheses", None, "Instead of a model: a file of outputs in the format of the task.", FILE)
_REFERENCES = DEFINE_path("references", None, "With --hypotheses: a file of the correct outputs.", FILE)
_TARGET_LANGUAGE = flags.DEFINE_string(
    "target_language",
    None,
    "Code of the target language, which determines how scores split text into words; default: Chinese, Japanese or "
    "Korean if the references are in it, else the language of the model, or with --hypotheses the one in the name of "
    "the references.",
)
_LOWERCASE = flags.DEFINE_bool("lowercase", None, "Also score lowercased text; default: if outputs are lowercased.")
_PAPER_BLEU = flags.DEFINE_bool("paper_bleu", False, "Also compute the paper's BLEU: Moses tokens, compounds split.")
_OUTPUT_DIR = DEFINE_path(
    "output_dir", None, "Folder of hypotheses.txt and scores.json; default: evaluation/NAME in the run.", NEW_FOLDER
)
flags.adopt_module_key_flags(decoding_flags)
_WORD_METRICS = ("bleu", "rouge_l")  # metrics whose words depend on the language
_REMOTE = {"model_dir": remote_paths.added_to, "data_dir": remote_paths.read, "ensemble": remote_paths.member}
program.REMOTE |= _REMOTE


def main(argv: list[str]) -> None:
    """Evaluates the model on the test set that the flags name."""
    if _HYPOTHESES.value or _REFERENCES.value or _TASK.value:
        _score_files()
        return
    if not model_flags.MODEL_DIR.value:
        raise InputError("give --model_dir, the directory of a run; or --task, --hypotheses and --references")
    run = Run(model_flags.MODEL_DIR.value)
    config = run.config
    _check_scoring(task(config.data.task))
    sources, references = _text(run)
    language = _TARGET_LANGUAGE.value or language_of(references, config.data.target_language)
    lowercase = config.data.lowercases_targets if _LOWERCASE.value is None else _LOWERCASE.value
    scoring = ScoringSettings(language, lowercase, _PAPER_BLEU.value)
    task(config.data.task).check(references, scoring)
    output_dir = _make_folder(_output_dir(run))
    translator = decoding_flags.load_translator()
    from t2t_keras import evaluation

    cross_entropy = evaluation.target_cross_entropy(translator, sources, references)
    with tqdm.tqdm(unit=" sentences", disable=not sys.stderr.isatty(), leave=False) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        result = evaluation.evaluate(translator, sources, references, scoring, update)
    perplexity, nats = evaluation.perplexity(cross_entropy), cross_entropy[0] / len(references)
    result = dataclasses.replace(result, perplexity=perplexity, nats_per_line=nats)
    verb = "replaced:" if (output_dir / "scores.json").exists() else "written:"
    paths = evaluation.write_evaluation(output_dir, result, _settings(translator, language))
    program.say(_table(result) + "\n" + translator.task.report(result.hypotheses, references).rstrip("\n"))
    is_other = not _TARGET_LANGUAGE.value and language != config.data.target_language
    if is_other and translator.task.metric in _WORD_METRICS:
        configured = config.data.target_language
        program.say(f"scored as {language!r}, the language of the references; the model was trained for {configured!r}")
    program.say(" ".join([verb, *(remote.with_urls(str(path)) for path in paths)]))
    decoding_flags.warn_of_cut(result.num_cut, translator.config)


def _check_scoring(kind: Task) -> None:
    """Refuses flags that do not apply to these scores."""
    if _TARGET_LANGUAGE.value and kind.metric not in _WORD_METRICS:
        raise InputError(f"--target_language: scores of {kind.name} do not depend on the language; omit the flag")
    for flag in (_PAPER_BLEU, _LOWERCASE):
        if flag.value and kind.metric != "bleu":
            raise InputError(f"--{flag.name} applies to translations; {kind.name} is scored by {kind.metric}")


def _score_files() -> None:
    """Scores a file of outputs against a file of references."""
    if not (_HYPOTHESES.value and _REFERENCES.value and _TASK.value):
        raise InputError("give --task, --hypotheses and --references together")
    decoding = flags.FLAGS.get_key_flags_for_module(decoding_flags)
    for flag in (*decoding, _SPLIT, _DATA_DIR, _SOURCE, _REFERENCE, _OUTPUT_DIR):
        if flag.present:
            raise InputError(
                f"--{flag.name} cannot be combined with --hypotheses, which are scored without a model; their "
                "scores are printed; give either --hypotheses or --model_dir and a test set"
            )
    kind = task(_TASK.value)
    _check_scoring(kind)
    read = readers.read_lines if kind.is_parallel else read_lines
    hypotheses, references = (kind.outputs(read(path), path) for path in (_HYPOTHESES.value, _REFERENCES.value))
    name = language_of_name(pathlib.Path(_REFERENCES.value).name) or ""
    language = _TARGET_LANGUAGE.value or language_of(references, name)
    scoring = ScoringSettings(language, bool(_LOWERCASE.value), _PAPER_BLEU.value)
    kind.check(references, scoring)
    with named(f"{_HYPOTHESES.value}, {_REFERENCES.value}"):
        scores = kind.scores(hypotheses, references, scoring)
    print("\n".join(_score_lines(scores)))
    print(kind.report(hypotheses, references), end="")


def _text(run: Run) -> tuple[list[str], list[str]]:
    if _SPLIT.value is not None:
        if _SOURCE.value or _REFERENCE.value:
            raise InputError("give either --split or --source and --reference, not both")
        return PreparedData.open(_DATA_DIR.value or run.data_dir).text(_SPLIT.value)
    if _DATA_DIR.value:
        raise InputError(f"--data_dir={_DATA_DIR.value} requires --split")
    kind = task(run.config.data.task)
    if not kind.is_parallel:
        if not _SOURCE.value or _REFERENCE.value:
            raise InputError(f"give --split, or --source with a file of {kind.name} that has the correct answers")
        examples = list(kind.examples(read_lines(_SOURCE.value), _SOURCE.value))
        return [source for source, _ in examples], [reference for _, reference in examples]
    if not _SOURCE.value or not (_REFERENCE.value or readers.has_both_sides(_SOURCE.value)):
        raise InputError("give --split=valid, --split=test, or both --source and --reference")
    languages = Languages(run.config.data.source_language, run.config.data.target_language)
    pairs = list(readers.read_pairs(_SOURCE.value, _REFERENCE.value, languages))
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def _output_dir(run: Run) -> pathlib.Path:
    if _OUTPUT_DIR.value:
        return pathlib.Path(_OUTPUT_DIR.value)
    if run.exported:
        raise InputError(f"--model_dir={run.path} is an exported model, to which nothing is written; give --output_dir")
    name = _SPLIT.value or pathlib.Path(_SOURCE.value).name
    if _DATA_DIR.value:
        name += f"_of_{pathlib.PurePath(remote.origin(_DATA_DIR.value)).name}"
    return run.path / "evaluation" / name


def _make_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder, created if missing; raises OSError before the work if the folder is not writable."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


def _settings(translator: "Translator", language: str) -> dict[str, Any]:
    return {
        "model_dir": remote.with_urls(model_flags.MODEL_DIR.value),
        "checkpoint": model_flags.CHECKPOINT.value,
        "ensemble": [remote.with_urls(name) for name in model_flags.ENSEMBLE.value],
        "ensemble_mean": model_flags.ENSEMBLE_MEAN.value if model_flags.ENSEMBLE.value else None,
        "excluded": translator.settings.excluded,
        "engine": engine_flags.ENGINE.value,
        "compute_type": engine_flags.COMPUTE_TYPE.value,
        "data_split": _SPLIT.value,  # "split" is a setting of the search
        "data_dir": _DATA_DIR.value and remote.origin(_DATA_DIR.value),
        "source": _SOURCE.value,
        "reference": _REFERENCE.value,
        "target_language": language,
        **dataclasses.asdict(translator.config),
    }


def _score_lines(scores: list[Score], result: "Evaluation | None" = None) -> list[str]:
    rows = [(score.name, f"{score.value:.2f}", score.signature) for score in scores]
    if result is not None:
        rows.append(("perplexity", f"{result.perplexity:.3f}", "per token of the references, including end symbols"))
        rows.append(("nats", f"{result.nats_per_line:.3f}", "per line of the references, for any vocabulary"))
    width = max(len(name) for name, *_ in rows)
    lines = [f"{name:<{width}}  {value:>9}  {signature}" for name, value, signature in rows]
    names_by_comparison: dict[str, list[str]] = {}
    for score in scores:
        if score.name not in ("BLEU", "chrF", "TER"):
            names_by_comparison.setdefault(score.comparable_to, []).append(score.name)
    return lines + [f"{', '.join(names)}: compare with {basis}" for basis, names in names_by_comparison.items()]


def _table(result: "Evaluation") -> str:
    lines = _score_lines(result.scores, result)
    lines.append(
        f"{len(result.hypotheses):,} lines, {result.num_tokens:,} tokens in {result.seconds:.1f} s: "
        f"{result.tokens_per_second:,.0f} tokens/s"
    )
    if result.num_long_lines:
        lines.append(decoding_flags.report_of_long(result.num_long_lines))
    return "\n".join(lines)


run = program.command(main)
