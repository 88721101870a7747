"""Records the weights of the interactive attention figure: `python docs/figures/attention_weights.py MODEL_DIR`."""

import json
import sys
from pathlib import Path

import numpy as np

import launch.quiet_tensorflow  # noqa: F401  (before TensorFlow)
from t2t_keras import Translator

FILE = Path(__file__).parents[1] / "images/attention.json"
SENTENCE = "Two women with red hats are talking in front of an old house."

if __name__ == "__main__":
    translator = Translator.load(sys.argv[1])
    (translation,) = translator.translate([SENTENCE])
    (explanation,) = translator.explain([SENTENCE], [translation.text])
    kinds = {}
    for kind in ("cross", "encoder", "decoder"):
        weights, queries, keys = explanation.view(kind)
        percent = np.rint(100 * weights).astype(int).tolist()  # [layers, heads, queries, keys]
        kinds[kind] = {"source": keys, "target": queries, "layers": percent}
    FILE.write_text(json.dumps(kinds, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(FILE, translation.text)
