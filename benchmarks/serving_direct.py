"""Runs CTranslate2 without a server, from text to text, for comparison in `benchmarks.serving`.

    python -m benchmarks.serving_direct alone|batches MODEL TEXT COMPUTE_TYPE BEAM PENALTY SECONDS

MODEL is the output of `launch.convert --to=ctranslate2`. In a turn of SECONDS (see `benchmarks.turns`), sentences are
translated one after another, or all of them repeatedly in CTranslate2's own batches.
"""

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import ctranslate2
import sentencepiece

from benchmarks.turns import serve
from t2t_keras.machine.processor import num_cores

_BATCH_SENTENCES = 32


class Direct:
    """CTranslate2 and SentencePiece as in their documentation; returns the best output of each sentence.

    Args:
        model: directory of the model.
        compute_type: number format of the products.
        workers: number of concurrent batches, with one thread each.
        beam_size, length_penalty: settings of the search.
    """

    def __init__(self, model: str, compute_type: str, workers: int, beam_size: int, length_penalty: float) -> None:
        self._pieces = [
            sentencepiece.SentencePieceProcessor(model_file=os.path.join(model, f"{side}.model"))
            for side in ("source", "target")
        ]
        self._translator = ctranslate2.Translator(
            model, compute_type=compute_type, inter_threads=workers, intra_threads=1
        )
        self._beam_size, self._length_penalty = beam_size, length_penalty

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Returns the translations."""
        source, target = self._pieces
        results = self._translator.translate_batch(
            source.encode(list(texts), out_type=str),
            beam_size=self._beam_size,
            length_penalty=self._length_penalty,
            max_batch_size=_BATCH_SENTENCES,
        )
        return [target.decode(result.hypotheses[0]) for result in results]


def for_seconds(work: Callable[[], int], seconds: float) -> dict[str, Any]:
    """Repeats work for some seconds; returns sentences per second, and the median time of a piece in ms."""
    taken, count, started = [], 0, time.perf_counter()
    while (now := time.perf_counter()) - started < seconds:
        count += work()
        taken.append(time.perf_counter() - now)
    return {"per_second": count / (time.perf_counter() - started), "p50": 1000 * statistics.median(taken)}


def main() -> None:
    """Runs the turns."""
    role, model, text, compute_type, beam_size, length_penalty, seconds = sys.argv[1:]
    with open(text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()]
    direct = Direct(model, compute_type, num_cores(), int(beam_size), float(length_penalty))
    one_by_one = itertools.cycle([sentence] for sentence in sentences)

    def work() -> int:
        return len(direct.translate(next(one_by_one) if role == "alone" else sentences))

    serve(lambda: for_seconds(work, float(seconds)), {"versions": f"ctranslate2 {ctranslate2.__version__}"})


if __name__ == "__main__":
    main()
