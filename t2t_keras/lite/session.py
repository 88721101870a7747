"""The cache of a search, and the interpreters that compute its steps."""

import numpy as np

from t2t_keras.formats.graphs.names import KEYS, MEMORY_KEYS, MEMORY_VALUES, VALUES, of_layers
from t2t_keras.lite.buffers import Buffers
from t2t_keras.lite.interpreter import Interpreter

HIDDEN = -1e9  # masks a key, as in `mask_bias`
_ROOM = 16  # positions by which the cache grows


def newest_bias(beam_size: int) -> np.ndarray:
    """The bias that masks the newest cache entries of other hypotheses, float32 [beam, beam]."""
    return np.where(np.eye(beam_size, dtype=bool), np.float32(0), np.float32(HIDDEN))


class Session:
    """A converted model with a cache, for one search at a time.

    The cache is the interpreter's inputs: a step writes one more position into them, and they are copied only when
    there is no more room or sentences leave. `encoder` and `step` are converted graphs; `layer_heads` gives the number
    of heads, the width of keys and the width of values of each decoder layer.
    """

    def __init__(
        self,
        encoder: bytes,
        step: bytes,
        layer_heads: list[tuple[int, int, int]],
        beam_size: int,
        log_totals: bool,
        threads: int,
    ) -> None:
        layers = len(layer_heads)
        self._past = of_layers(layers, KEYS, VALUES)
        self._memory = of_layers(layers, MEMORY_KEYS, MEMORY_VALUES)
        self._heads = {
            f"{name}{index}": (heads, width)
            for index, (heads, d_key, d_value) in enumerate(layer_heads)
            for name, width in ((KEYS, d_key), (VALUES, d_value), (MEMORY_KEYS, d_key), (MEMORY_VALUES, d_value))
        }
        self._encoder = Interpreter(encoder, self._memory, threads)
        results = ["logits", "attention", *(["log_totals"] if log_totals else [])]
        self._step = Interpreter(step, [*self._past, *results], threads)
        self.beam_size = beam_size
        self._buffers = Buffers()
        self._sentences = np.zeros([0], np.int32)
        self._length = self._room = 0

    def start(self, inputs: np.ndarray, hidden: np.ndarray) -> None:
        """Begins a search of embedded sources, float32 [batch, source_len, d_model]; `hidden` is true for padding."""
        sentences, source_len, width = inputs.shape
        self._sentences = np.arange(sentences, dtype=np.int32)
        self._length, self._room = 0, _ROOM * self.beam_size
        if not sentences:
            return
        bias = np.where(hidden, np.float32(HIDDEN), np.float32(0))[:, np.newaxis]  # --> [batch, 1, source_len]
        self._encoder.resize({"inputs": inputs.shape, "bias": bias.shape})
        self._encoder.input("inputs")[...] = inputs
        self._encoder.input("bias")[...] = bias
        self._encoder.invoke()
        self._allocate(sentences, source_len, width)
        self._step.input("memory_bias")[...] = bias[:, np.newaxis]
        for name in self._memory:
            heads = self._encoder.output(name).reshape(sentences, source_len, *self._heads[name])
            self._step.input(name)[...] = heads.transpose(0, 2, 1, 3)  # --> [batch, heads, source_len, d_head]

    def advance(self, inputs: np.ndarray, sentences: np.ndarray, bias: np.ndarray | None = None) -> None:
        """Computes one position of every hypothesis, and appends its keys and values to the cache.

        Args:
            inputs: float32 [batch * beam, d_model], embedded tokens with positions.
            sentences: int32 [batch], which of the search's sentences remain, ascending.
            bias: float32 [batch, beam, positions * beam]: `HIDDEN` for other hypotheses' cache entries, 0 for those of
                the hypothesis itself; None with a beam of one.
        """
        if len(sentences) < len(self._sentences) or self._length == self._room:
            self._rearrange(sentences)
        self._step.input("inputs")[...] = inputs
        if bias is not None:
            self._step.input("bias")[:, 0, :, : self._length] = bias
        self._step.invoke()
        end = self._length + self.beam_size
        for name in self._past:
            self._step.input(name)[:, :, self._length : end] = self._step.output(name)
        if bias is None:
            self._step.input("bias")[..., self._length : end] = 0.0
        self._length = end

    def logits(self) -> np.ndarray:
        """A copy of the last step's logits, float32 [batch * beam, vocab]."""
        return self._buffers.copy(self._step.output("logits"))

    def logits_in_place(self) -> np.ndarray:
        """Read-only view of the logits, invalid after the next step."""
        return self._step.output("logits")

    def log_totals(self) -> np.ndarray:
        """Read-only view of the log-sum-exp of the logits, float32 [batch * beam], if the graph computes it."""
        return self._step.output("log_totals")

    def attention(self) -> np.ndarray:
        """The last layer's attention in the last step, averaged over heads, float32 [batch, beam, source_len]."""
        return self._step.output("attention").copy()

    def _rearrange(self, sentences: np.ndarray) -> None:
        """Keeps these sentences only, and makes room for more positions if there is none."""
        places = np.searchsorted(self._sentences, sentences)
        memory = {name: self._step.input(name)[places] for name in (*self._memory, "memory_bias")}
        past = {name: self._step.input(name)[places, :, : self._length] for name in self._past}
        source_len, width = memory["memory_bias"].shape[3], self._step.input("inputs").shape[1]
        self._sentences = sentences.copy()
        if self._length == self._room:
            self._room += _ROOM * self.beam_size
        self._allocate(len(sentences), source_len, width)
        for name, array in memory.items():
            self._step.input(name)[...] = array
        for name, array in past.items():
            self._step.input(name)[:, :, : self._length] = array
        if self.beam_size == 1:
            self._step.input("bias")[..., : self._length] = 0.0

    def _allocate(self, sentences: int, source_len: int, width: int) -> None:
        """Sets the shapes of the step's inputs, with an empty cache that is masked throughout."""
        shapes = {
            "inputs": (sentences * self.beam_size, width),
            "bias": (sentences, 1, self.beam_size, self._room),
            "memory_bias": (sentences, 1, 1, source_len),
        }
        for name, (heads, d_head) in self._heads.items():
            shapes[name] = (sentences, heads, self._room if name in self._past else source_len, d_head)
        self._step.resize(shapes)
        self._step.input("bias").fill(HIDDEN)
        for name in self._past:
            self._step.input(name).fill(0.0)  # masked, but new memory may hold NaN
