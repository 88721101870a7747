"""Translates lines of standard input with the model in this folder, without TensorFlow.

    python FOLDER/translate.py [--beam_size=4] [--threads=1] < sentences.txt

It needs numpy, sentencepiece, and a runtime for the model: onnxruntime or ai-edge-litert.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import sentencepiece

PAD_ID, EOS_ID = 0, 1
SETTINGS_FILE = "search.json"
_LENGTHS = ("min_length", "max_length_offset", "max_length_factor", "length_penalty", "length_normalization")
SETTINGS = ("beam_size", *_LENGTHS, "ends_within_beam", "patience")
TEXT_SETTINGS = ("max_length", "lowercase", "truecase")
Arrays = Mapping[str, np.ndarray]
# The same characters as in `t2t_keras.text.repair`.
_BREAKS = re.compile("[ \t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]"
)
# The same characters as in `t2t_keras.text.truecase`: those in front of the first letter of a text, and the letter.
_BEGINNING = re.compile("(?:[ \u00a0\u202f'\"“”„‟‚‘’«»‹›(\\[¿¡–—•*「『（【]|- )*[^ ]")


class Graphs(Protocol):
    """The model as an encoder and one step of a decoder with a cache of all earlier positions.

    A hypothesis is a row of a batch. Ids are int32, masks bool, and all other arrays float32. The cache has room for
    the longest output and begins with zeros. Entries that are not written yet are masked, but must be finite.
    """

    @property
    def past(self) -> Mapping[str, tuple[int, int]]:
        """The sizes (heads, width) of each array of the cache, [batch, heads, room, width], by name."""

    def encode(self, *, source_ids: np.ndarray) -> Arrays:
        """Encodes sources, [batch, source_len], padded with 0, to the arrays [batch, ...] that `step` needs."""

    def step(self, **inputs: np.ndarray) -> Arrays:
        """Computes the log-probabilities of the next token.

        Args:
            **inputs: `token_ids`, [batch], the newest tokens; `position`, a scalar, the number of tokens before them;
                the arrays of the result of `encode`; and the arrays of the cache.

        Returns:
            "log_probs", [batch, vocab], and for each array of the cache "new_NAME", [batch, heads, 1, width], which the
            caller writes to the cache at `position`.
        """


class OnnxGraphs:
    """A model in ONNX."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._encoder, self._step = (
            onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "step")
        )
        inputs = self._step.get_inputs()
        self.past = {each.name: (each.shape[1], each.shape[3]) for each in inputs if _is_past(each.name)}

    def encode(self, *, source_ids: np.ndarray) -> Arrays:
        return self._run(self._encoder, {"source_ids": source_ids})

    def step(self, **inputs: np.ndarray) -> Arrays:
        return self._run(self._step, inputs)

    @staticmethod
    def _run(session: Any, inputs: Arrays) -> Arrays:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


class LiteRtGraphs:
    """A model in LiteRT."""

    def __init__(self, folder: Path, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(str(folder / "model.tflite"), num_threads=threads)
        self._encode = self._interpreter.get_signature_runner("encode")
        self._step = self._interpreter.get_signature_runner("step")
        details = self._step.get_input_details()
        shapes = {name: each["shape"] for name, each in details.items() if _is_past(name)}
        self.past = {name: (int(shape[1]), int(shape[3])) for name, shape in shapes.items()}

    def encode(self, *, source_ids: np.ndarray) -> Arrays:
        return self._encode(source_ids=source_ids)

    def step(self, **inputs: np.ndarray) -> Arrays:
        return self._step(**inputs)


def _is_past(name: str) -> bool:
    return name.startswith(("keys_", "values_"))


def load_graphs(folder: Path, threads: int = 1) -> Graphs:
    """Loads the model in a folder, in ONNX or LiteRT; raises a FileNotFoundError if there is none."""
    if (folder / "step.onnx").exists():
        return OnnxGraphs(folder, threads)
    if (folder / "model.tflite").exists():
        return LiteRtGraphs(folder, threads)
    raise FileNotFoundError(f"{folder} has neither encoder.onnx and step.onnx nor model.tflite")


def length_penalty(length: int, settings: Mapping[str, Any]) -> float:
    """Returns the divisor that turns the log-probability of `length` tokens, end symbol included, into a score."""
    if settings["length_normalization"] == "gnmt":
        return ((5 + length) / 6) ** settings["length_penalty"]
    return float(length) if settings["length_normalization"] == "average" else 1.0


def search(graphs: Graphs, source_ids: Sequence[int], settings: Mapping[str, Any]) -> tuple[list[int], float]:
    """Runs a beam search for one sentence.

    Args:
        graphs: the model.
        source_ids: token ids, end symbol included.
        settings: the values of `SETTINGS`.

    Returns:
        The token ids of the best output, without its end symbol, and its score; no ids and -inf if the model's
        log-probabilities are not finite.
    """
    beam = settings["beam_size"]
    count = 2 * beam if beam > 1 else 1  # candidates; a beam of one is greedy search
    factor = np.float32(settings["max_length_factor"])
    longest = math.ceil(factor * np.float32(len(source_ids))) + settings["max_length_offset"]
    memory = graphs.encode(source_ids=np.array([source_ids], np.int32))
    memory = {name: np.repeat(array, beam, axis=0) for name, array in memory.items()}
    past = {name: np.zeros((beam, heads, longest, width), np.float32) for name, (heads, width) in graphs.past.items()}
    tokens = np.full(beam, PAD_ID, np.int32)  # the start symbol
    totals = np.array([0.0] + [-np.inf] * (beam - 1), np.float32)  # log-probabilities; -inf marks an empty slot
    texts: list[list[int]] = [[] for _ in range(beam)]
    finished: list[tuple[float, list[int]]] = []
    num_finished = 0
    for position in range(longest):
        outputs = graphs.step(token_ids=tokens, position=np.array(position, np.int32), **memory, **past)
        candidates = totals[:, np.newaxis] + outputs["log_probs"]  # [beam, vocab]
        candidates[:, PAD_ID] = -np.inf
        if position < settings["min_length"]:
            candidates[:, EOS_ID] = -np.inf
        active: list[tuple[float, int, int]] = []
        for rank, (total, parent, token) in enumerate(_best(candidates, count)):
            if token != EOS_ID:
                active.append((total, parent, token))
            elif rank < beam or not settings["ends_within_beam"]:
                finished.append((total / length_penalty(position + 1, settings), texts[parent]))
                num_finished += 1
        active = active[:beam]
        finished = sorted(finished, key=lambda output: output[0], reverse=True)[:beam]
        if not active and not finished:
            return [], -math.inf
        # An active hypothesis can at best end now, with the length penalty of the longest output.
        if not active or (finished and finished[0][0] >= active[0][0] / length_penalty(longest, settings)):
            break
        if settings["patience"] and num_finished >= settings["patience"] * beam:
            break
        parents = [parent for _, parent, _ in active] + [0] * (beam - len(active))
        for name, array in past.items():
            array[:, :, position] = outputs[f"new_{name}"][:, :, 0]
            past[name] = array[parents]
        texts = [[*texts[parent], token] for _, parent, token in active] + [[]] * (beam - len(active))
        tokens = np.array([text[-1] if text else PAD_ID for text in texts], np.int32)
        totals = np.array([total for total, _, _ in active] + [-np.inf] * (beam - len(active)), np.float32)
    if finished:
        return finished[0][1], finished[0][0]
    return texts[0], float(totals[0]) / length_penalty(len(texts[0]), settings)


def _best(candidates: np.ndarray, count: int) -> list[tuple[float, int, int]]:
    """Returns the `count` best finite candidates of float32 [beam, vocab]: (log-probability, hypothesis, token)."""
    flat = candidates.reshape(-1)
    best = np.flatnonzero(flat >= np.partition(flat, -count)[-count])
    best = best[np.lexsort((best, -flat[best]))][:count]
    parents, tokens = np.divmod(best, candidates.shape[1])
    rows = zip(flat[best].tolist(), parents.tolist(), tokens.tolist(), strict=True)
    return [row for row in rows if row[0] > -math.inf]


def lowercased(line: str) -> str:
    """Lowercases a line character by character: unlike `str.lower`, this writes no final sigma."""
    return line.replace("\u03a3", "\u03c3").lower()


def cleaned(line: str) -> str:
    """Repairs a line like training data: removes invisible characters, and turns breaks and runs of blanks into one."""
    return _BREAKS.sub(" ", _INVISIBLE.sub("", line)).strip(" ")


def capitalised(line: str) -> str:
    """Returns a line with a capital first letter, unless this would not be a single character."""
    if not (beginning := _BEGINNING.match(line)):
        return line
    place = beginning.end() - 1
    title = line[place].title()
    return f"{line[:place]}{title}{line[place + 1 :]}" if len(title) == 1 else line


def main() -> None:
    """Translates the lines of standard input to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beam_size", type=_at_least_one)
    parser.add_argument("--threads", type=_at_least_one, default=1)
    arguments = parser.parse_args()
    folder = Path(__file__).parent
    settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    settings["beam_size"] = arguments.beam_size or settings["beam_size"]
    graphs = load_graphs(folder, arguments.threads)
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model")) for side in ("source", "target")
    )
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.decode("utf-8", "replace")
        text = cleaned(lowercased(text) if settings["lowercase"] != "none" else text)
        ids = source.encode(text)
        if len(ids) >= settings["max_length"]:
            warning = f"line {number} has {len(ids)} tokens; the model has seen fewer than {settings['max_length']}"
            print(warning, file=sys.stderr)
        output_ids = search(graphs, [*ids, EOS_ID], settings)[0] if text.strip() else []
        output = cleaned(target.decode(output_ids))
        sys.stdout.buffer.write(f"{capitalised(output) if settings['truecase'] else output}\n".encode())
        sys.stdout.buffer.flush()


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
