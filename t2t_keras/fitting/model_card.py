"""Writes the model card: a README.md, next to an exported model, with the data, scores and limits of the model."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.fitting.fit_steps import FitSteps
from t2t_keras.machine.files import replacing

if TYPE_CHECKING:
    from t2t_keras.models.contract import SequenceModel

# Known licences of the text, by corpus.
_LICENCES = {
    "files": "unknown; ask the provider of the text",
    "multi30k": "published for research (Elliott et al., 2016); its sentences describe pictures of Flickr",
    "tatoeba": "CC BY 2.0 FR, the sentences of tatoeba.org",
    "gettext": "each package is under its own licence, from BSD to AGPL",
    "gettext_permissive": "each package is under its own licence: BSD, MIT, ISC or Apache",
    "wmt14": "published for research; each of its parts has its own terms",
    "opus": "see the page of the corpus on opus.nlpl.eu",
    "tfds": "see the catalogue of TensorFlow Datasets",
}


def write_card(steps: FitSteps, version: Path, licence: str, arguments: str, as_typed: Callable[[str], str]) -> Path:
    """Writes README.md for the newest version into the directory of the exported model.

    Args:
        steps: the steps, all of them completed.
        version: directory of the newest version.
        licence: the text's licence as the user gave it, or "" for the known licence of the corpus.
        arguments: arguments of the program that created the model.
        as_typed: converts the commands of a source checkout to those of an installed package, if it is installed.

    Returns:
        The path of README.md.
    """
    path = steps.places.export_dir / "README.md"
    sections = [_title(steps, version), _data(steps, licence), _sizes(steps), _choices(steps), _scores(steps)]
    text = "\n\n".join([*sections, _examples(steps), _limits(steps), as_typed(_commands(steps, arguments))])
    with replacing(path) as file:
        file.write(text + "\n")
    return path


def _title(steps: FitSteps, version: Path) -> str:
    data = steps.data.config
    return (
        f"# {steps.places.export_dir.name}\n\n"
        f"Translates text from {data.source_language} to {data.target_language}. Version {version.name} is a "
        "SavedModel that takes strings and returns their translations. It was created by t2t_keras (launch.fit)."
    )


def _data(steps: FitSteps, licence: str) -> str:
    corpus = steps.data.config.corpus
    counts = steps.data.counts
    licence_text = licence or _LICENCES.get(corpus.partition(":")[0], _LICENCES["tfds"])
    origin = ", ".join(f"`{name}`" for name in steps.record["files"] or ()) or f"the corpus `{corpus}`"
    rows = [(split, f"{counts[split]['kept']:,}") for split in steps.data.splits]
    return f"## Data\n\n{origin}. Licence of the text: {licence_text}.\n\n{_table(('split', 'pairs'), rows)}"


def _sizes(steps: FitSteps) -> str:
    model: SequenceModel = steps.translator.model  # type: ignore[assignment]
    minutes = steps.minutes_trained
    duration = ("minutes", f"{minutes:.1f}") if minutes >= 1 else ("seconds", f"{60 * minutes:.0f}")
    rows = [
        ("parameters", f"{sum(model.config.parameter_counts().values()):,}"),
        ("vocabulary size", f"{steps.data.tokenizer.vocab_size:,}"),
        ("updates", f"{steps.record['chosen']['step']:,}"),
        (f"{duration[0]} of training", duration[1]),
        ("weights", f"{steps.record['chosen']['name']}, by {steps.record['chosen']['compared']}"),
        *([("search", steps.record["search"])] if steps.record["search"] else []),
    ]
    return f"## Sizes\n\n{_table(('quantity', 'value'), rows)}"


def _choices(steps: FitSteps) -> str:
    rows = [(f"`{each.name}`", f"`{each.value}`", each.reason) for each in steps.choices]
    return f"## Choices\n\n{_table(('setting', 'value', 'reason'), rows)}"


def _scores(steps: FitSteps) -> str:
    rows = [(each["name"], f"{each['value']:.1f}", f"`{each['signature']}`") for each in steps.record["scores"]]
    sentences = f"On {steps.data.counts['test']['kept']:,} sentences that training has not seen."
    table = _table(("score", "value", "signature"), rows)
    return f"## Scores\n\n{sentences} These sentences did not influence any choice.\n\n{table}"


def _examples(steps: FitSteps) -> str:
    parts = []
    for kind, title in (("best", "Most similar to their references"), ("worst", "Least similar to their references")):
        rows = [(*row[:3], f"{row[3]:.0f}") for row in steps.record["examples"][kind]]
        parts.append(f"{title}:\n\n{_table(('source', 'reference', 'translation', 'chrF'), rows)}")
    return "## Examples\n\n" + "\n\n".join(parts)


def _limits(steps: FitSteps) -> str:
    return (
        "## Limits\n\n"
        f"The model was trained on {steps.data.counts['train']['kept']:,} pairs and nothing else: other text, unknown "
        "words and names are translated badly, and fluent output may be wrong. Sentences that are much longer than "
        "those of the text are translated in parts. Bias and errors of the text may occur in the translations. The "
        "scores are for text that is similar to the training text."
    )


def _commands(steps: FitSteps, arguments: str) -> str:
    lines = [f"python -m launch.fit {arguments}", *(line for line, _ in commands(steps))]
    return "## Commands\n\n```\n" + "\n".join(lines) + "\n```"


def commands(steps: FitSteps) -> list[tuple[str, str]]:
    """Returns commands that use the exported model, each with a description."""
    export_dir = shlex.quote(str(steps.places.export_dir))
    return [
        (f"python -m launch.translate --model_dir={export_dir}", "translate lines that you type"),
        (
            f"python -m launch.serve --export_dir={export_dir}",
            "start a server, with a web page at http://127.0.0.1:8501/",
        ),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
