"""CTranslate2 driven by itself, from text to text: what `benchmarks.serving` compares servers with.

    python -m benchmarks.serving_direct alone|batches MODEL TEXT COMPUTE_TYPE BEAM PENALTY SECONDS

MODEL is what `launch.convert --to=ctranslate2` writes. In a turn of SECONDS (see `benchmarks.turns`)
sentences are translated one after another, or all of them again and again in its own batches.
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
    """CTranslate2 and SentencePiece as their own documents show them, and of each sentence the best output.

    Args:
        model: the directory.
        compute_type: how CTranslate2 multiplies.
        workers: batches that run at once, with one thread each.
        beam_size, length_penalty: of its search.
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
        """Their translations."""
        source, target = self._pieces
        results = self._translator.translate_batch(
            source.encode(list(texts), out_type=str),
            beam_size=self._beam_size,
            length_penalty=self._length_penalty,
            max_batch_size=_BATCH_SENTENCES,
        )
        return [target.decode(result.hypotheses[0]) for result in results]


def for_seconds(work: Callable[[], int], seconds: float) -> dict[str, Any]:
    """Does work again and again for a while: sentences a second, and the median of what each piece took, in ms."""
    taken, count, begun = [], 0, time.perf_counter()
    while (now := time.perf_counter()) - begun < seconds:
        count += work()
        taken.append(time.perf_counter() - now)
    return {"per_second": count / (time.perf_counter() - begun), "p50": 1000 * statistics.median(taken)}


def main() -> None:
    """Serves the turns."""
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
