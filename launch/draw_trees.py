"""Draws each constituency tree of a file as an SVG file, without TensorFlow.

Example:
    python -m launch.translate --model_dir=runs/parser --input=sentences.txt --output=sentences.mrg
    python -m launch.draw_trees --input=sentences.mrg --output_dir=trees
"""

import pathlib

from absl import flags

from t2t_keras.data.sources.corpora_files import read_lines
from t2t_keras.machine.files import replacing
from t2t_keras.pictures.tree_drawing import tree_svg
from t2t_keras.tasks.parsing.trees import read_trees, simplified

from . import program
from .flag_types import FILE, NEW_FOLDER, DEFINE_path

_INPUT = DEFINE_path(
    "input", None, "Trees in brackets, each on one or more lines; also .gz .bz2 .xz.", FILE, required=True
)
_OUTPUT_DIR = DEFINE_path("output_dir", None, "Folder for 1.svg, 2.svg, ...", NEW_FOLDER, required=True)
_TRACES = flags.DEFINE_bool("traces", False, "Whether to also draw traces and functions of labels.")


def main(argv: list[str]) -> None:
    """Draws every tree of the file."""
    folder = pathlib.Path(_OUTPUT_DIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for count, (_, tree) in enumerate(read_trees(read_lines(_INPUT.value), _INPUT.value), start=1):
        with replacing(folder / f"{count}.svg") as file:
            file.write(tree_svg(tree if _TRACES.value else simplified(tree)))
    program.say(f"{count:,} trees drawn in {folder}")


run = program.command(main)
