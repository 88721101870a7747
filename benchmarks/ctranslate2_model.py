"""Writes a model of this project as a directory that CTranslate2 loads, with generated names of the pieces.

    python -m benchmarks.ctranslate2_model WEIGHTS.npz MODEL.json DIRECTORY

The weights are arrays by the names of `t2t_keras.models.weights.weight_names`. They include the position tables
"source_positions/table" and "target_positions/table", whether learned or not. MODEL.json has the fields of
`t2t_keras.config.TransformerConfig`. The program needs NumPy and CTranslate2, but neither Keras nor TensorFlow.
"""

import json
import pathlib
import sys

import numpy as np

from t2t_keras.config import TransformerConfig
from t2t_keras.formats.ctranslate2 import write_spec
from t2t_keras.symbols import SPECIAL


def vocabulary(size: int) -> list[str]:
    """Returns a name for each id, because CTranslate2 takes names, and the sentences are given as ids."""
    return [*SPECIAL, *map(str, range(len(SPECIAL), size))][:size]


def main() -> None:
    """Converts the model."""
    weights_path, model_path, directory = sys.argv[1:]
    model = TransformerConfig(**json.loads(pathlib.Path(model_path).read_text()))
    names = vocabulary(model.vocab_size)
    pathlib.Path(directory).mkdir(exist_ok=True)
    with np.load(weights_path) as weights:
        write_spec(dict(weights), model, (names, names), pathlib.Path(directory))


if __name__ == "__main__":
    main()
