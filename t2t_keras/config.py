"""Everything that can be set, as frozen dataclasses that travel as JSON.

`Config` is what a run's `config.json` holds: a model, the data it was prepared
from, its training and its decoding. `override` applies `section.field=value`
settings with the type of the field.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from t2t_keras.config_values import checked, parsed
from t2t_keras.errors import InputError

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2


def _section_of(config: Any) -> str:
    return type(config).__name__.removesuffix("Config").lower()


def _check_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise InputError(f"{_section_of(config)}.{name} must be positive, got {value}")


def _check_not_negative(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 0:
            raise InputError(f"{_section_of(config)}.{name} must not be negative, got {getattr(config, name)}")


def _check_seed(config: Any) -> None:
    """NumPy takes no others."""
    if not 0 <= config.seed < 2**32:
        raise InputError(f"{_section_of(config)}.seed must be in [0, 2 ** 32), got {config.seed}")


def _check_rate(config: Any, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{_section_of(config)}.{name} must be in [0, 1), got {getattr(config, name)}")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The network (section 3 of the paper); the defaults are the paper's base model.

    Attributes:
        vocab_size: entries of the shared vocabulary, special symbols included.
        num_encoder_layers: N of the encoder.
        num_decoder_layers: N of the decoder.
        d_model: width of the embeddings and of every sub-layer's output.
        d_ff: inner width of the feed-forward sub-layers.
        num_heads: h, attention heads.
        d_key: width of a head's queries and keys; None means d_model / num_heads.
        d_value: width of a head's values; None means d_model / num_heads.
        dropout_rate: dropout on each sub-layer's output and on the embedding sums (5.4).
        attention_dropout_rate: dropout on the attention weights (T2T; the paper has none).
        relu_dropout_rate: dropout inside the feed-forward sub-layers (T2T; the paper has none).
        norm_position: "post": LayerNorm(x + Sublayer(x)), the paper; "pre": x + Sublayer(LayerNorm(x)), T2T.
        position_encoding: "sinusoidal" (interleaved, 3.5), "sinusoidal_halves" (T2T), "learned" (Table 3, E).
        max_positions: rows of the learned position table; sinusoids have no limit.
        tie_embeddings: one matrix for source, target and the pre-softmax projection (3.4).
        use_attention_bias: whether the attention projections have biases.
        layer_norm_epsilon: added to the variance in layer normalisation.
    """

    vocab_size: int = 37000
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_key: int | None = None
    d_value: int | None = None
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.0
    relu_dropout_rate: float = 0.0
    norm_position: Literal["post", "pre"] = "post"
    position_encoding: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
    max_positions: int = 1024
    tie_embeddings: bool = True
    use_attention_bias: bool = True
    layer_norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        _check_positive(
            self,
            "vocab_size",
            "num_encoder_layers",
            "num_decoder_layers",
            "d_model",
            "d_ff",
            "num_heads",
            "d_key",
            "d_value",
            "max_positions",
            "layer_norm_epsilon",
        )
        _check_rate(self, "dropout_rate", "attention_dropout_rate", "relu_dropout_rate")
        if self.d_model % 2:
            raise InputError(f"model.d_model must be even (sine and cosine pairs), got {self.d_model}")
        if (self.d_key is None or self.d_value is None) and self.d_model % self.num_heads:
            raise InputError(
                f"model.num_heads={self.num_heads} does not divide model.d_model={self.d_model}; "
                "set model.d_key and model.d_value"
            )


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """How parallel text became token ids.

    Attributes:
        corpus: where the text came from ("files", "multi30k", "tatoeba", "gettext", "tfds:NAME").
        source_language: language code of the source side.
        target_language: language code of the target side.
        vocab_size: entries of the shared SentencePiece vocabulary.
        max_length: training pairs with more tokens than this on a side, end symbol included, are dropped.
        max_length_ratio: training pairs whose sides differ in length by more than this factor are dropped.
        lowercase: whether all text was lowercased before anything else.
        seed: of whatever is drawn at random while preparing.
    """

    corpus: str = "files"
    source_language: str = "en"
    target_language: str = "de"
    vocab_size: int = 37000
    max_length: int = 256
    max_length_ratio: float = 4.0
    lowercase: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        _check_positive(self, "vocab_size", "max_length", "max_length_ratio")
        _check_seed(self)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training (section 5 of the paper); the defaults are the paper's base recipe.

    Attributes:
        tokens_per_batch: budget of a global batch: rows times the longer padded side stays within it.
        max_steps: optimizer updates.
        max_minutes: stop after so many minutes of training in this process; 0 means no limit.
        seed: of initial weights, batches and dropout.
        learning_rate_scale: factor on the schedule of 5.3 (T2T uses 2).
        warmup_steps: of the schedule.
        adam_beta1: decay of the first moment.
        adam_beta2: decay of the second moment.
        adam_epsilon: added to the root of the second moment.
        label_smoothing: weight of the uniform distribution in the target (5.4).
        clip_norm: largest global gradient norm, after the sum over replicas; 0 means no clipping.
        accumulation_steps: parts that each replica's share of a batch is run in; does not change the result.
        steps_per_call: training steps between two returns to Python.
        mixed_bfloat16: compute in bfloat16, keep weights, loss and optimizer in float32.
        deterministic: compute the same bits each time on a GPU too, more slowly; a CPU always does.
        jit_compile: compile forward and backward with XLA; needs static_shapes.
        static_shapes: pad batches to a fixed set of shapes (needed by XLA and TPUs).
        ema_decay: of the exponential moving average of the weights that is saved beside them; 0 means none.
        log_steps: steps between two lines of metrics.
        checkpoint_steps: steps between two checkpoints.
        checkpoint_minutes: minutes between two checkpoints; when positive, replaces checkpoint_steps.
        keep_checkpoints: how many of the newest checkpoints stay on disk.
        validation_steps: steps between two validations; 0 means at each checkpoint.
        validation_sentences: how many validation sentences are decoded for BLEU; 0 means none.
        best_metric: what decides on the best checkpoint, "loss" or "bleu" (which needs validation_sentences).
        patience: validations without an improvement before training stops; 0 means never.
    """

    tokens_per_batch: int = 25000
    max_steps: int = 100000
    max_minutes: float = 0.0
    seed: int = 1
    learning_rate_scale: float = 1.0
    warmup_steps: int = 4000
    adam_beta1: float = 0.9
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    label_smoothing: float = 0.1
    clip_norm: float = 0.0
    accumulation_steps: int = 1
    steps_per_call: int = 10
    mixed_bfloat16: bool = False
    deterministic: bool = False
    jit_compile: bool = False
    static_shapes: bool = False
    ema_decay: float = 0.0
    log_steps: int = 100
    checkpoint_steps: int = 1000
    checkpoint_minutes: float = 0.0
    keep_checkpoints: int = 5
    validation_steps: int = 0
    validation_sentences: int = 0
    best_metric: Literal["loss", "bleu"] = "loss"
    patience: int = 0

    def __post_init__(self) -> None:
        _check_positive(
            self,
            "tokens_per_batch",
            "max_steps",
            "learning_rate_scale",
            "warmup_steps",
            "adam_epsilon",
            "accumulation_steps",
            "steps_per_call",
            "log_steps",
            "checkpoint_steps",
            "keep_checkpoints",
        )
        _check_rate(self, "adam_beta1", "adam_beta2", "label_smoothing", "ema_decay")
        _check_seed(self)
        _check_not_negative(self, "max_minutes", "clip_norm", "checkpoint_minutes", "patience")
        _check_not_negative(self, "validation_steps", "validation_sentences")
        if self.best_metric == "bleu" and not self.validation_sentences:
            raise InputError("train.best_metric=bleu needs train.validation_sentences above 0")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Decoding (section 6.1 of the paper).

    Attributes:
        beam_size: hypotheses kept a sentence; 1 is greedy search.
        length_penalty: alpha of GNMT's length penalty ((5 + length) / 6) ** alpha; 0 means none.
        min_length: output tokens before the end symbol is allowed.
        max_length_offset: output tokens allowed beyond the source's length, end symbols included.
        max_length_factor: what the source's length counts for in that limit.
        patience: 0 searches until nothing better can be found; else a sentence also ends when
            patience * beam_size hypotheses have finished (Kasai et al., 2024).
        tokens_per_batch: budget of a decoding batch: sentences times source length.
        length_normalization: what a log-probability is divided by to make a score: "gnmt" (the length penalty),
            "average" (the length) or "none".
        coverage_penalty: beta of GNMT's coverage penalty; 0 means none.
        no_repeat_ngram_size: so many tokens in a row come at most once; 0 means no such rule.
        num_groups: groups of a diverse beam search (Vijayakumar et al., 2018); 1 means no such search.
        diversity_strength: what a token's log-probability is lowered by for each hypothesis of an earlier
            group that took it at the same step.
        sampling: draw beam_size samples instead of searching.
        temperature: of sampling: what logits are divided by.
        top_k: of sampling: only so many of the most probable tokens; 0 means all.
        top_p: of sampling: the fewest most probable tokens that together have this probability; 1 means all.
        seed: of sampling; a sentence's samples are a function of it and of the sentence.
        bfloat16: multiply with the weights in bfloat16 while searching: faster with large models where the
            processor computes in it, and scores change in their third digit.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    min_length: int = 0
    max_length_offset: int = 50
    max_length_factor: float = 1.0
    patience: float = 0.0
    tokens_per_batch: int = 4096
    length_normalization: Literal["gnmt", "average", "none"] = "gnmt"
    coverage_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    num_groups: int = 1
    diversity_strength: float = 0.0
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    bfloat16: bool = False

    def __post_init__(self) -> None:
        _check_positive(
            self, "beam_size", "max_length_offset", "tokens_per_batch", "num_groups", "temperature", "top_p"
        )
        _check_not_negative(
            self,
            "length_penalty",
            "min_length",
            "max_length_factor",
            "patience",
            "coverage_penalty",
            "no_repeat_ngram_size",
            "diversity_strength",
            "top_k",
        )
        if self.length_normalization not in ("gnmt", "average", "none"):
            valid = "gnmt, average, none"
            raise InputError(f"decode.length_normalization must be one of {valid}; got {self.length_normalization!r}")
        if self.top_p > 1:
            raise InputError(f"decode.top_p must be at most 1, got {self.top_p}")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.beam_size % self.num_groups:
            raise InputError(
                f"decode.beam_size={self.beam_size} must be a multiple of decode.num_groups={self.num_groups}"
            )
        if self.diversity_strength and self.num_groups == 1:
            raise InputError(f"decode.diversity_strength={self.diversity_strength} needs decode.num_groups above 1")
        for name, off in (("num_groups", 1), ("coverage_penalty", 0), ("patience", 0)):
            if self.sampling and getattr(self, name) != off:
                raise InputError(f"decode.{name}={getattr(self, name)} does not go together with decode.sampling=true")
        for name, off in (("temperature", 1), ("top_k", 0), ("top_p", 1)):
            if not self.sampling and getattr(self, name) != off:
                raise InputError(f"decode.{name}={getattr(self, name)} needs decode.sampling=true")


@dataclasses.dataclass(frozen=True)
class Config:
    """All of a run: the contents of its `config.json`."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The configuration as nested plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]]) -> "Config":
        """The inverse of `to_dict`; a missing field keeps its default.

        Raises:
            InputError: an unknown section or field, or a value of the wrong type.
        """
        config = cls()
        for section, fields in values.items():
            if section not in SECTIONS:
                raise InputError(f"unknown section {section!r} in a configuration; valid: {', '.join(SECTIONS)}")
            if not isinstance(fields, Mapping):
                raise InputError(f"section {section!r} of a configuration must hold settings by name, got {fields!r}")
            current = getattr(config, section)
            taken = {
                name: checked(f"{section}.{name}", _field_type(section, name), value) for name, value in fields.items()
            }
            config = dataclasses.replace(config, **{section: dataclasses.replace(current, **taken)})
        return config


SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}


def override(config: Config, settings: Iterable[str]) -> Config:
    """Applies settings of the form "section.field=value", in order.

    Args:
        config: what the settings change.
        settings: for example ["model.dropout_rate=0.3", "train.max_steps=8000"].

    Returns:
        A new configuration.

    Raises:
        InputError: a setting without "=", an unknown section or field, or a
            value that is not of the field's type; names what is valid.
    """
    changes: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set {setting!r}: expected section.field=value, for example train.max_steps=8000")
        changes.setdefault(section, {})[name] = parsed(key.strip(), _field_type(section, name), text.strip())
    for section, fields in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **fields)})
    return config


def differences(old: Config, new: Config) -> list[str]:
    """The fields in which two configurations differ, as "section.field: old -> new"."""
    return [
        f"{section}.{name}: {value!r} -> {new.to_dict()[section][name]!r}"
        for section, fields in old.to_dict().items()
        for name, value in fields.items()
        if value != new.to_dict()[section][name]
    ]


def _field_type(section: str, name: str) -> Any:
    if section not in SECTIONS:
        raise InputError(f"unknown section {section!r} in {section}.{name}; valid: {', '.join(SECTIONS)}")
    hints = typing.get_type_hints(SECTIONS[section])
    if name not in hints:
        raise InputError(f"unknown setting {section}.{name}; valid: {', '.join(f'{section}.{h}' for h in hints)}")
    return hints[name]
