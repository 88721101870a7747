"""Scores existing translations by their probability under a model.

Writes one line for each pair: score, log-probability and number of tokens, separated by tabs. With --json, it writes an
object for each pair, which also contains the tokens and their log-probabilities.

Examples:
    python -m launch.score --model_dir=runs/mine --source=t.en --translation=t.de
    python -m launch.score --model_dir=runs/mine --source=t.en --translation=t.de --json --output=scores.jsonl
"""

import dataclasses
import json
from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.data.readers import WITH_BOTH_SIDES, read_pairs
from t2t_keras.runs.run import Run
from t2t_keras.text.language_codes import Languages

from . import program
from .flag_groups import model_flags
from .flag_types import FILE, NEW_FILE, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.inference.forced import ForcedScore

_SOURCE = DEFINE_path(
    "source", None, f"UTF-8 text, or both sides in one file ({WITH_BOTH_SIDES}).", FILE, required=True
)
_TRANSLATION = DEFINE_path("translation", None, "Translations of the source, line by line.", FILE)
flags.DEFINE_alias("reference", "translation")
_OUTPUT = DEFINE_path("output", None, "File for the scores; default: standard output.", NEW_FILE)
_JSON = flags.DEFINE_bool("json", False, "Whether to write JSON objects, with every token.")
flags.adopt_module_key_flags(model_flags)
flags.mark_flag_as_required("model_dir")

# Number of pairs that are sorted by length and scored at a time.
_CHUNK_LINES = 5000


def main(argv: list[str]) -> None:
    """Scores the pairs that the flags name."""
    program.refuse_replacing(_OUTPUT.value, _SOURCE.value, _TRANSLATION.value)
    data = Run(model_flags.MODEL_DIR.value).config.data
    languages = Languages(data.source_language, data.target_language)
    pairs = list(read_pairs(_SOURCE.value, _TRANSLATION.value, languages))
    with program.output(_OUTPUT.value) as file:
        translator = model_flags.load_translator()
        sources, targets = translator.encoded([source for source, _ in pairs], [target for _, target in pairs])
        for first in range(0, len(sources), _CHUNK_LINES):  # the scores of all tokens of a corpus need much memory
            chunk = slice(first, first + _CHUNK_LINES)
            file.writelines(
                f"{_line(score)}\n".encode() for score in translator.score_tokens(sources[chunk], targets[chunk])
            )


def _line(score: "ForcedScore") -> str:
    if _JSON.value:
        return json.dumps(dataclasses.asdict(score), ensure_ascii=False)
    return f"{score.score:.6f}\t{score.log_prob:.6f}\t{len(score.pieces)}"


run = program.command(main)
