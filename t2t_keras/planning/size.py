"""The size and cost of a model, computed from its configuration without building it."""

from t2t_keras.config import Config

_FLOAT_BYTES = 4
_FLOPS = {"matrices": "matrices: 6 x their parameters", "attention": "attention, {length} tokens per sentence"}


def training_memory(config: Config) -> dict[str, int]:
    """Returns the bytes of float32 arrays that training needs for any batch.

    Every device holds them, except "model, to validate", which exists once per worker.
    """
    weights = _FLOAT_BYTES * sum(config.model.parameter_counts().values())
    averages = {"averages": weights} if config.train.ema_decay else {}
    # A batch that is computed in parts needs the sum of the gradients so far besides the gradients of one part.
    gradients = weights * (2 if config.train.accumulation_steps > 1 or config.train.objective == "risk" else 1)
    return {"weights": weights, "gradients": gradients, "Adam": 2 * weights, **averages, "model, to validate": weights}


def describe(config: Config, length: int) -> str:
    """Returns a table of a model's sizes, parameters, training FLOPs and memory, as lines of text.

    The FLOPs are those for sentences of `length` tokens.
    """
    counts = config.model.parameter_counts()
    flops = config.model.training_flops(length)
    memory = training_memory(config)
    total = sum(counts.values())
    sections = [
        ("model", [("family", config.model.family), *config.model.sizes().items()]),
        (
            "parameters",
            [(part, f"{count:,}  {count / total:6.1%}") for part, count in counts.items()]
            + [("total", f"{total:,}  {1:6.1%}")],
        ),
        (
            "training FLOPs per (source + target) token",
            [
                *((_FLOPS.get(kind, kind).format(length=length), f"{count:,}") for kind, count in flops.items()),
                ("total", f"{sum(flops.values()):,}"),
            ],
        ),
        (
            "memory in float32, besides activations",
            [(part, f"{size / 2**20:,.1f} MiB") for part, size in memory.items()]
            + [("total", f"{sum(memory.values()) / 2**20:,.1f} MiB")],
        ),
    ]
    return two_columns(sections)


def two_columns(sections: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """Formats sections as lines of text: each section's title, then its names and values in two columns."""
    names = max(len(name) for _, rows in sections for name, _ in rows)
    texts = []
    for title, rows in sections:
        values = max(len(value) for _, value in rows)
        texts.append("\n".join([title, *(f"  {name:<{names}}  {value:>{values}}" for name, value in rows)]))
    return "\n\n".join(texts)
