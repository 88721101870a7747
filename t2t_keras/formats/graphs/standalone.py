"""Translates lines of standard input with the model in this folder, without TensorFlow.

    python FOLDER/translate.py [--beam_size=4] [--threads=1] < sentences.txt

It needs numpy, sentencepiece, and what runs the model: onnxruntime, or ai-edge-litert.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import sentencepiece

PAD_ID, EOS_ID = 0, 1
SETTINGS_FILE = "search.json"
SETTINGS = (
    *("beam_size", "length_penalty", "length_normalization", "min_length"),
    *("max_length_offset", "max_length_factor", "ends_within_beam"),
)
Arrays = Mapping[str, np.ndarray]


class Graphs(Protocol):
    """The model: an encoder, one step of the decoder, and the heads and the width of each part of its cache."""

    @property
    def past(self) -> Mapping[str, tuple[int, int]]: ...

    def encode(self, **inputs: np.ndarray) -> Arrays: ...

    def step(self, **inputs: np.ndarray) -> Arrays: ...


class OnnxGraphs:
    """A model in ONNX."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._sessions = [
            onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "step")
        ]
        inputs = self._sessions[1].get_inputs()
        self.past = {one.name: (one.shape[1], one.shape[3]) for one in inputs if _is_past(one.name)}

    def encode(self, **inputs: np.ndarray) -> Arrays:
        return self._run(0, inputs)

    def step(self, **inputs: np.ndarray) -> Arrays:
        return self._run(1, inputs)

    def _run(self, number: int, inputs: Arrays) -> Arrays:
        session = self._sessions[number]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


class LiteGraphs:
    """A model for LiteRT."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(str(folder / "model.tflite"), num_threads=threads)
        self._encode = self._interpreter.get_signature_runner("encode")
        self._step = self._interpreter.get_signature_runner("step")
        shapes = {name: one["shape"] for name, one in self._step.get_input_details().items() if _is_past(name)}
        self.past = {name: (int(shape[1]), int(shape[3])) for name, shape in shapes.items()}

    def encode(self, **inputs: np.ndarray) -> Arrays:
        return self._encode(**inputs)

    def step(self, **inputs: np.ndarray) -> Arrays:
        return self._step(**inputs)


def _is_past(name: str) -> bool:
    return name.startswith(("keys_", "values_"))


def load_graphs(folder: Path, threads: int = 1) -> Graphs:
    """The model in a folder, whichever it has."""
    return OnnxGraphs(folder, threads) if (folder / "step.onnx").exists() else LiteGraphs(folder, threads)


def length_penalty(length: int, settings: Mapping[str, Any]) -> float:
    """The divisor that makes a score of the log-probability of so many tokens, end symbol included."""
    if settings["length_normalization"] == "gnmt":
        return ((5 + length) / 6) ** settings["length_penalty"]
    return float(length) if settings["length_normalization"] == "average" else 1.0


def search(graphs: Graphs, source_ids: Sequence[int], settings: Mapping[str, Any]) -> tuple[list[int], float]:
    """Beam search: the best output, without its end symbol, and its score.

    Args:
        graphs: the model.
        source_ids: of one sentence, end symbol included.
        settings: those of `SETTINGS`.
    """
    beam = settings["beam_size"]
    longest = math.ceil(settings["max_length_factor"] * len(source_ids)) + settings["max_length_offset"]
    memory = graphs.encode(source_ids=np.array([source_ids], np.int32))
    memory = {name: np.repeat(array, beam, axis=0) for name, array in memory.items()}
    past = {name: np.zeros((beam, heads, longest, width), np.float32) for name, (heads, width) in graphs.past.items()}
    tokens = np.full(beam, PAD_ID, np.int32)  # what a target begins with
    totals = np.where(
        np.arange(beam) == 0, np.float32(0), np.float32(-np.inf)
    )  # log-probabilities; -inf: no hypothesis
    texts: list[list[int]] = [[] for _ in range(beam)]
    finished: list[tuple[float, list[int]]] = []
    for position in range(longest):
        outputs = graphs.step(token_ids=tokens, position=np.array(position, np.int32), **memory, **past)
        candidates = totals[:, np.newaxis] + outputs["log_probs"]  # [beam, vocab]
        candidates[:, PAD_ID] = -np.inf
        if position < settings["min_length"]:
            candidates[:, EOS_ID] = -np.inf
        living: list[tuple[float, int, int]] = []
        for rank, (total, parent, token) in enumerate(_best(candidates, 2 * beam)):
            if token != EOS_ID:
                living.append((total, parent, token))
            elif rank < beam or not settings["ends_within_beam"]:
                finished.append((total / length_penalty(position + 1, settings), texts[parent]))
        living = living[:beam]
        finished = sorted(finished, key=lambda one: one[0], reverse=True)[:beam]
        # What lives cannot do better than end now with the penalty of the longest output.
        if not living or (finished and finished[0][0] >= living[0][0] / length_penalty(longest, settings)):
            break
        parents = [parent for _, parent, _ in living] + [0] * (beam - len(living))
        for name, array in past.items():
            array[:, :, position] = outputs[f"new_{name}"][:, :, 0]
            past[name] = array[parents]
        texts = [[*texts[parent], token] for _, parent, token in living] + [[]] * (beam - len(living))
        tokens = np.array([text[-1] if text else PAD_ID for text in texts], np.int32)
        totals = np.array([total for total, _, _ in living] + [-np.inf] * (beam - len(living)), np.float32)
    if finished:
        return finished[0][1], finished[0][0]
    return texts[0], float(totals[0]) / length_penalty(len(texts[0]), settings)


def _best(candidates: np.ndarray, count: int) -> list[tuple[float, int, int]]:
    """The best so many of [beam, vocab] that can be at all: log-probability, hypothesis and token of each."""
    flat = candidates.reshape(-1)
    best = np.argpartition(-flat, count - 1)[:count]
    best = best[np.lexsort((best, -flat[best]))]
    parents, tokens = np.divmod(best, candidates.shape[1])
    found = zip(flat[best].tolist(), parents.tolist(), tokens.tolist(), strict=True)
    return [one for one in found if one[0] > -math.inf]


def main() -> None:
    """Reads and writes lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beam_size", type=int)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    folder = Path(__file__).parent
    settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    settings["beam_size"] = arguments.beam_size or settings["beam_size"]
    graphs = load_graphs(folder, arguments.threads)
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model")) for side in ("source", "target")
    )
    for line in sys.stdin:
        pieces = source.encode(line.strip())
        output_ids = search(graphs, [*pieces, EOS_ID], settings)[0] if pieces else []
        print(target.decode(output_ids), flush=True)


if __name__ == "__main__":
    main()
