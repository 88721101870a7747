"""One search's cache, and the interpreter that computes its steps."""

import warnings

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.lite.buffers import Buffers
from t2t_keras.decoding.lite.graph import KEYS, MEMORY_KEYS, MEMORY_VALUES, RESULTS, VALUES

_HIDDEN = -1e9  # what hides a key, as `mask_bias` has it
_ROOM = 16  # positions that the cache grows by


class Session:
    """A converted step with a cache of its own; for one search at a time, and one after the other.

    The cache is the interpreter's own inputs: a step writes one more position into them, and nothing is copied
    until there is no more room or sentences leave.

    Args:
        content: of `StepGraph.converted`.
        beam_size: hypotheses a sentence.
        threads: for each operation.
    """

    def __init__(self, content: bytes, beam_size: int, threads: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is to move to a package of its own; TensorFlow 2.21 still has it
            self._interpreter = tf.lite.Interpreter(model_content=content, num_threads=threads)
        inputs, outputs = self._interpreter.get_input_details(), self._interpreter.get_output_details()
        self._inputs = {details["name"]: details["index"] for details in inputs}
        self._shapes = {details["name"]: details["shape"] for details in inputs}
        self._past = [name for name in self._inputs if name.startswith((KEYS, VALUES))]
        self._memory = [name for name in self._inputs if name.startswith((MEMORY_KEYS, MEMORY_VALUES, "memory_bias"))]
        names = sorted((*self._past, *RESULTS[: len(outputs) - len(self._past)]))  # as a graph sorts a dict's values
        self._outputs = {name: details["index"] for name, details in zip(names, outputs, strict=True)}
        self.beam_size = beam_size
        self._buffers = Buffers()
        self._sentences = np.zeros([0], np.int32)
        self._length = self._room = 0

    def start(self, memory: dict[str, np.ndarray]) -> None:
        """Begins a search.

        Args:
            memory: by the names of `StepGraph`'s inputs: "memory_bias", and every layer's keys and values.
        """
        self._sentences = np.arange(len(memory["memory_bias"]), dtype=np.int32)
        self._length, self._room = 0, _ROOM * self.beam_size
        if len(self._sentences):
            self._allocate(memory, {})

    def advance(self, inputs: np.ndarray, sentences: np.ndarray, own: np.ndarray | None = None) -> None:
        """Computes one position of every hypothesis, and writes its keys and values down.

        Args:
            inputs: float32 [batch * beam, d_model].
            sentences: int32 [batch], which of those that the search began with are left, ascending.
            own: bool [batch, beam, positions * beam], which of the cache's entries are each hypothesis' own; None
                with a beam of one, where all are.
        """
        if len(sentences) < len(self._sentences) or self._length == self._room:
            self._rearrange(sentences)
        self._view("inputs")[...] = inputs
        if own is not None:
            self._view("bias")[:, 0, :, : self._length] = np.where(own, np.float32(0), np.float32(_HIDDEN))
        self._interpreter.invoke()
        end = self._length + self.beam_size
        for name in self._past:
            self._view(name)[:, :, self._length : end] = self._output(name)
        if own is None:
            self._view("bias")[..., self._length : end] = 0.0
        self._length = end

    def logits(self) -> np.ndarray:
        """What follows from the last step, float32 [batch * beam, vocab]."""
        return self._buffers.copy(self._output("logits"))

    def predictions(self) -> tuple[np.ndarray, np.ndarray]:
        """Logits and probabilities, float32 [batch, vocab] each, with a beam of one; only to look at before the next step."""
        return self._output("logits"), self._output("probabilities")

    def attention(self) -> np.ndarray:
        """The last layer's attention in the last step, mean over its heads, float32 [batch, beam, source_len]."""
        return self._output("attention").copy()

    def _rearrange(self, sentences: np.ndarray) -> None:
        """Leaves out all other sentences, and makes room for more positions if there is none."""
        places = np.searchsorted(self._sentences, sentences)
        memory = {name: self._view(name)[places] for name in self._memory}
        past = {name: self._view(name)[places, :, : self._length] for name in self._past}
        self._sentences = sentences.copy()
        if self._length == self._room:
            self._room += _ROOM * self.beam_size
        self._allocate(memory, past)

    def _allocate(self, memory: dict[str, np.ndarray], past: dict[str, np.ndarray]) -> None:
        """Gives all inputs the sizes of what is given and of the room that there is, and fills them."""
        sentences, *_, source_len = memory["memory_bias"].shape
        for name, index in self._inputs.items():
            shape = list(self._shapes[name])
            shape[0] = sentences * self.beam_size if name == "inputs" else sentences
            if len(shape) == 4:
                axis = 3 if name in ("bias", "memory_bias") else 2
                shape[axis] = source_len if name in self._memory else self._room
            self._interpreter.resize_tensor_input(index, shape, strict=False)
        self._interpreter.allocate_tensors()
        for name, array in memory.items():
            self._view(name)[...] = array
        for name in self._past:
            self._view(name).fill(0.0)  # hidden, but what is in memory may be no number
        for name, array in past.items():
            self._view(name)[:, :, : self._length] = array
        bias = self._view("bias")
        bias.fill(_HIDDEN)
        if self.beam_size == 1:
            bias[..., : self._length] = 0.0

    def _view(self, name: str) -> np.ndarray:
        """An input, in place; not to be kept, since it may move."""
        return self._interpreter.tensor(self._inputs[name])()

    def _output(self, name: str) -> np.ndarray:
        return self._interpreter.tensor(self._outputs[name])()
