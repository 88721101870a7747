"""The contract of an export: the files of a version, and the signatures of its graph.

`t2t_keras.export` writes what this module describes. The server, `Run` and clients read it. `docs/exports.md` explains
the signatures.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Files and directories, relative to the directory of a version.
GRAPH_FILE = "saved_model.pb"
WEIGHTS = "variables/variables"
ASSETS = "assets"
VOCABULARY_FILE = f"{ASSETS}/vocab.model"
_EXTRA = "assets.extra"
CONFIG_FILE = f"{_EXTRA}/config.json"
WARM_UP_FILE = f"{_EXTRA}/tf_serving_warmup_requests"
FILE_LIST = f"{_EXTRA}/files.json"  # only in object storage

# The score of a missing translation: the lowest float32, because JSON has no infinity.
LOWEST = -3.4028234663852886e38

# Maximum number of tokens, end symbols included, of a line in the signatures whose memory grows with its square.
MAX_LINE_TOKENS = 1024

# The number of next tokens that `ALTERNATIVES` tries. Some may begin the same word, so there may be fewer words.
NUM_ALTERNATIVES = 8

# Names of signatures.
SERVING_DEFAULT = "serving_default"
NBEST = "nbest"
SAMPLE = "sample"
SCORE = "score"
TOKENS = "tokens"
CONSTRAINED = "constrained"
ALIGN = "align"
ATTENTION = "attention"
ALTERNATIVES = "alternatives"
STREAM_BEGIN = "stream_begin"
STREAM_ADVANCE = "stream_advance"


class TensorType(NamedTuple):
    """The type of an input or an output.

    Attributes:
        dtype: name of the dtype.
        axes: the axes; an axis is a size, or the name of a size that varies between calls or exports.
    """

    dtype: str
    axes: tuple[int | str, ...]

    @property
    def shape(self) -> list[int | None]:
        """The shape, with None for the axes whose size varies."""
        return [axis if isinstance(axis, int) else None for axis in self.axes]


class SignatureContract(NamedTuple):
    """The inputs and outputs of a signature.

    Attributes:
        inputs: the types of the inputs by name.
        outputs: the types of the outputs by name.
        takes_state: whether it also takes the state of a search, tensors named by `state_name`.
        returns_state: whether it also returns such a state.
    """

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    takes_state: bool = False
    returns_state: bool = False


def _tensors(text: str) -> Mapping[str, TensorType]:
    """Parses a list of tensors, "name dtype [axis, ...]"; the dtype of strings is left out."""
    tensors = {}
    for name, dtype, axes in re.findall(r"(\w+)(?: (\w+))? \[([^]]*)\]", text):
        names = [axis.strip() for axis in axes.split(",") if axis]
        tensors[name] = TensorType(dtype or "string", tuple(int(axis) if axis.isdecimal() else axis for axis in names))
    return MappingProxyType(tensors)


def _signature(inputs: str, outputs: str, **state: bool) -> SignatureContract:
    return SignatureContract(_tensors(inputs), _tensors(outputs), **state)


_TOKEN_INPUTS = "source_ids int32 [batch, source_len], source_length int32 [batch]"
_TOKEN_OUTPUTS = "translation_ids int32 [batch, target_len], translation_length int32 [batch], score float32 [batch]"

# All signatures by name; an export may lack some of them. k is the beam size.
SIGNATURES: Mapping[str, SignatureContract] = MappingProxyType(
    {
        SERVING_DEFAULT: _signature("text [batch]", "translation [batch], score float32 [batch]"),
        NBEST: _signature("text [batch]", "translations [batch, k], scores float32 [batch, k]"),
        SAMPLE: _signature("text [batch], seed int64 [batch]", "translation [batch], log_probability float32 [batch]"),
        SCORE: _signature("text [batch], target [batch]", "log_probability float32 [batch], token_count int32 [batch]"),
        TOKENS: _signature(_TOKEN_INPUTS, _TOKEN_OUTPUTS),
        CONSTRAINED: _signature(
            f"{_TOKEN_INPUTS}, constraints int32 [batch, constraints, phrases, phrase_len]", _TOKEN_OUTPUTS
        ),
        ALIGN: _signature(
            "text [batch]",
            "translation [batch], score float32 [batch], source_pieces [batch, source_len], "
            "target_pieces [batch, target_len], attention float32 [batch, target_len, source_len]",
        ),
        ATTENTION: _signature(
            "text [batch], target [batch], kind [batch], layer int32 [batch]",
            "query_pieces [batch, query_len], key_pieces [batch, key_len], "
            "attention float32 [batch, heads, query_len, key_len], num_layers int32 [batch]",
        ),
        ALTERNATIVES: _signature(
            "text [batch], prefix [batch]",
            f"translations [batch, {NUM_ALTERNATIVES}], scores float32 [batch, {NUM_ALTERNATIVES}]",
        ),
        STREAM_BEGIN: _signature("text [1]", "", returns_state=True),
        STREAM_ADVANCE: _signature(
            "steps int32 []", "translation [1], score float32 [1], done bool []", takes_state=True, returns_state=True
        ),
    }
)


def state_name(number: int) -> str:
    """Returns the name of a tensor of the state of a search, given its number, counted from 0."""
    return f"state_{number:03}"
