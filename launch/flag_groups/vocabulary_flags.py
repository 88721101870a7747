"""The flags that say what the vocabulary of prepared data is."""

from typing import Any, get_args

from absl import flags

from t2t_keras.config import DataConfig
from t2t_keras.config.data_config import VocabType
from t2t_keras.errors import InputError
from t2t_keras.runs.run import Run
from t2t_keras.text.tokenizer import Tokenizer

FLAGS = flags.FLAGS
_DEFAULTS = DataConfig()

flags.DEFINE_enum(
    "vocab_type",
    _DEFAULTS.vocab_type,
    get_args(VocabType),
    "Entries of the shared vocabulary: bpe and unigram: pieces of words; char: characters; byte: bytes of UTF-8.",
)
flags.DEFINE_integer(
    "vocab_size",
    _DEFAULTS.vocab_size,
    "Entries of the shared vocabulary. With char: at most as many, and bytes spell the rarest characters. With "
    "byte there are always 260, and less is refused.",
)
flags.DEFINE_integer(
    "source_vocab_size",
    _DEFAULTS.source_vocab_size,
    "Entries of a vocabulary of sources alone; --vocab_size is that of targets then. 0: both sides share one.",
    lower_bound=0,
)
flags.DEFINE_list("symbols", list(_DEFAULTS.symbols), "Words of the text that are one token each, such as <2fr>.")
flags.DEFINE_string("vocab_from", None, "A run or an export whose vocabulary is used.")
flags.DEFINE_integer(
    "extend_vocab",
    _DEFAULTS.extend_vocab,
    "With --vocab_from: pieces of the training text that its vocabulary gets in addition.",
    lower_bound=0,
)


def settings_of_another_run() -> dict[str, Any]:
    """The settings that come with the vocabulary of another run."""
    if not FLAGS.vocab_from:
        return {}
    for name in ("vocab_type", "vocab_size", "source_vocab_size", "lowercase"):
        if FLAGS[name].present:
            raise InputError(f"--{name} is decided by --vocab_from")
    run = Run(FLAGS.vocab_from)
    data = run.config.data
    sizes = {name: size or 0 for name, size in Tokenizer.load(run.vocab_path).sizes.items()}
    return {"vocab_type": data.vocab_type, "lowercase": data.lowercase, **sizes}
