"""The size and the cost of a model, counted from its configuration without making it."""

from t2t_keras.config import Config, ModelConfig

_FLOAT_BYTES = 4


def parameter_counts(model: ModelConfig) -> dict[str, int]:
    """Trainable parameters of a model's parts: "embedding", "encoder", "decoder".

    "embedding" holds the token matrices, the pre-softmax projection and learned positions.
    """
    norm = 2 * model.d_model
    final_norm = norm if model.norm_position == "pre" else 0
    attention = _attention_matrices(model) + _attention_biases(model)
    feed_forward = _feed_forward_matrices(model) + model.d_ff + model.d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    token_matrices = 1 if model.tie_embeddings else 3
    positions = 2 * model.max_positions if model.position_encoding == "learned" else 0
    return {
        "embedding": (token_matrices * model.vocab_size + positions) * model.d_model,
        "encoder": model.num_encoder_layers * encoder_layer + final_norm,
        "decoder": model.num_decoder_layers * decoder_layer + final_norm,
    }


def training_flops(model: ModelConfig, length: int) -> dict[str, int]:
    """Floating-point operations to train on one source token and one target token.

    A matrix takes 2 operations a parameter forward and 4 backward, for each
    token that it is applied to: 6 x (the encoder's and the decoder's matrices and
    the pre-softmax projection). Looking an embedding up takes none. A query's
    products with `length` keys and values are 2 x length x heads x (d_key +
    d_value) forward, three times that with the backward pass, in each of the
    encoder's attentions and both of the decoder's; the causal mask saves nothing.

    Args:
        model: the sizes.
        length: tokens of a sentence, on both sides.

    Returns:
        "matrices" and "attention".
    """
    attentions = model.num_encoder_layers + 2 * model.num_decoder_layers
    feed_forwards = model.num_encoder_layers + model.num_decoder_layers
    matrices = attentions * _attention_matrices(model) + feed_forwards * _feed_forward_matrices(model)
    d_key, d_value = _head_widths(model)
    return {
        "matrices": 6 * (matrices + model.vocab_size * model.d_model),
        "attention": 6 * attentions * length * model.num_heads * (d_key + d_value),
    }


def training_memory(config: Config) -> dict[str, int]:
    """Bytes that training holds whatever the batch, all float32.

    Those of "weights", "gradients", "Adam", maybe "averages" are each device's; the "model, to validate" is on the
    first one of each worker alone.
    """
    weights = _FLOAT_BYTES * sum(parameter_counts(config.model).values())
    averages = {"averages": weights} if config.train.ema_decay else {}
    return {"weights": weights, "gradients": weights, "Adam": 2 * weights, **averages, "model, to validate": weights}


def describe(config: Config, length: int) -> str:
    """A table of a model's sizes, parameters, training cost and memory.

    Args:
        config: of a run or a preset.
        length: tokens of a sentence, for the cost of attention.

    Returns:
        Lines of text.
    """
    counts = parameter_counts(config.model)
    flops = training_flops(config.model, length)
    memory = training_memory(config)
    total = sum(counts.values())
    sections = [
        ("model", [(name, str(value)) for name, value in _sizes(config.model).items()]),
        (
            "parameters",
            [(part, f"{count:,}  {count / total:6.1%}") for part, count in counts.items()]
            + [("total", f"{total:,}  {1:6.1%}")],
        ),
        (
            "training FLOPs a (source + target) token",
            [
                ("matrices: 6 x their parameters", f"{flops['matrices']:,}"),
                (f"attention, {length} tokens a sentence", f"{flops['attention']:,}"),
                ("total", f"{sum(flops.values()):,}"),
            ],
        ),
        (
            "memory in float32, besides activations",
            [(part, f"{size / 2**20:,.1f} MiB") for part, size in memory.items()]
            + [("total", f"{sum(memory.values()) / 2**20:,.1f} MiB")],
        ),
    ]
    return table(sections)


def table(sections: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """Lines of text: each section's title, and its names and values in two columns."""
    names = max(len(name) for _, rows in sections for name, _ in rows)
    return "\n\n".join(_section(title, rows, names) for title, rows in sections)


def _section(title: str, rows: list[tuple[str, str]], name_width: int) -> str:
    """One section; its values end in one column."""
    values = max(len(value) for _, value in rows)
    return "\n".join([title, *(f"  {name:<{name_width}}  {value:>{values}}" for name, value in rows)])


def _sizes(model: ModelConfig) -> dict[str, object]:
    """What the paper's Table 3 lists of a model, and what else changes its parameters."""
    d_key, d_value = _head_widths(model)
    return {
        "vocab_size": f"{model.vocab_size:,}",
        "layers (encoder + decoder)": f"{model.num_encoder_layers} + {model.num_decoder_layers}",
        "d_model": f"{model.d_model:,}",
        "d_ff": f"{model.d_ff:,}",
        "num_heads": model.num_heads,
        "d_key, d_value": f"{d_key}, {d_value}",
        "norm_position": model.norm_position,
        "position_encoding": model.position_encoding,
        "embeddings": "tied" if model.tie_embeddings else "separate",
        "attention biases": "yes" if model.use_attention_bias else "no",
        "dropout (residual, attention, ReLU)": (
            f"{model.dropout_rate}, {model.attention_dropout_rate}, {model.relu_dropout_rate}"
        ),
    }


def _head_widths(model: ModelConfig) -> tuple[int, int]:
    d_head = model.d_model // model.num_heads
    return model.d_key or d_head, model.d_value or d_head


def _attention_matrices(model: ModelConfig) -> int:
    """W^Q and W^K, then W^V and W^O, of all heads."""
    return 2 * model.d_model * model.num_heads * sum(_head_widths(model))


def _attention_biases(model: ModelConfig) -> int:
    if not model.use_attention_bias:
        return 0
    d_key, d_value = _head_widths(model)
    return model.num_heads * (2 * d_key + d_value) + model.d_model


def _feed_forward_matrices(model: ModelConfig) -> int:
    return 2 * model.d_model * model.d_ff
