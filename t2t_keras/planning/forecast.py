"""What a training takes on given devices: time, traffic, memory and disk, from the configuration alone.

Estimates to plan by: the products at a share of the peak that experience gives,
everything else at the rate of the wire or the memory that it goes through.
"""

import dataclasses

from t2t_keras.config import Config, ModelConfig
from t2t_keras.planning.size import table, training_memory

_FLOAT_BYTES = 4
_OFFSET_BYTES = 8
# Adam reads a gradient, a weight and two moments, and writes the latter three.
_ADAM_PASSES = 7


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a training runs on.

    Attributes:
        name: of a device.
        count: how many.
        flops: of one's products a second, at best, in the type that they are computed in.
        utilisation: the share of that which a training reaches.
        memory: bytes of one.
        memory_rate: bytes a second that one reads or writes of its memory.
        link_rate: bytes a second that one sends to the others.
    """

    name: str
    count: int
    flops: float
    utilisation: float
    memory: float
    memory_rate: float
    link_rate: float


# Of the makers' data sheets: products in bfloat16 without sparsity, NVLink in one direction, or the chips' own links.
KINDS = {
    "a100": {"flops": 312e12, "memory": 80e9, "memory_rate": 2.04e12, "link_rate": 300e9},
    "h100": {"flops": 989e12, "memory": 80e9, "memory_rate": 3.35e12, "link_rate": 450e9},
    "h200": {"flops": 989e12, "memory": 141e9, "memory_rate": 4.8e12, "link_rate": 450e9},
    "tpu_v5e": {"flops": 197e12, "memory": 16e9, "memory_rate": 0.82e12, "link_rate": 100e9},
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One update, all devices together.

    Attributes:
        tokens: of a side, padding included.
        flops: of all devices.
        sent: bytes of gradients that each device sends.
        products: seconds of the products.
        all_reduce: seconds of adding up the gradients.
        update: seconds of Adam.
    """

    tokens: int
    flops: float
    sent: float
    products: float
    all_reduce: float
    update: float

    @property
    def seconds(self) -> float:
        """All of it: the gradients are added up when all are there, so nothing of it overlaps."""
        return self.products + self.all_reduce + self.update


def step(config: Config, devices: Devices, length: int) -> Step:
    """The cost of one update.

    The gradients are float32 and go round a ring, in which each of n devices
    sends 2 (n - 1) / n of them.

    Args:
        config: the model and its batch.
        devices: what it runs on.
        length: tokens of a sentence, for the cost of attention.
    """
    tokens = config.train.tokens_per_batch
    flops = tokens * sum(config.model.training_flops(length).values())
    gradients = _FLOAT_BYTES * sum(config.model.parameter_counts().values())
    sent = 2 * (devices.count - 1) / devices.count * gradients
    return Step(
        tokens,
        flops,
        sent,
        flops / (devices.count * devices.flops * devices.utilisation),
        sent / devices.link_rate,
        _ADAM_PASSES * gradients / devices.memory_rate,
    )


def activation_memory(config: Config, length: int) -> int:
    """Bytes that the backward pass needs of the forward pass, for one source token and one target token.

    See `ModelConfig.kept_activations`.

    Args:
        config: the model, and whether it computes in bfloat16.
        length: tokens of a sentence, on both sides.
    """
    kept = config.model.kept_activations(length)
    return (2 if config.train.mixed_bfloat16 else _FLOAT_BYTES) * kept.computed + _FLOAT_BYTES * kept.float32


def pair_bytes(model: ModelConfig, length: int) -> int:
    """Bytes of a prepared pair on disk: ids of 16 or 32 bits, and where each side begins."""
    id_bytes = 2 if model.vocab_size <= 2**16 else 4
    return 2 * (length * id_bytes + _OFFSET_BYTES)


def forecast(config: Config, devices: Devices, length: int, pairs: int) -> str:
    """A table of what the training of a configuration takes.

    Args:
        config: of a run or a preset.
        devices: what it runs on.
        length: tokens of a sentence, end symbol included.
        pairs: of the training data; 0 leaves the data out.

    Returns:
        Lines of text.
    """
    one = step(config, devices, length)
    steps = config.train.max_steps
    seconds = steps * one.seconds
    kept = activation_memory(config, length) * one.tokens / devices.count / config.train.accumulation_steps
    memory = {**training_memory(config), "activations": kept}
    peak = f"{devices.count} x {devices.name} at {devices.utilisation:.0%} of {devices.flops / 1e12:,.0f} TFLOP/s"
    sections = [
        (
            f"a step on {peak}",
            [
                ("tokens of a side, padding included", f"{one.tokens:,}"),
                ("FLOPs", f"{one.flops:.3g}"),
                ("products", f"{one.products * 1e3:,.1f} ms"),
                (f"adding up gradients, {one.sent / 1e6:,.0f} MB a device", f"{one.all_reduce * 1e3:,.1f} ms"),
                ("Adam", f"{one.update * 1e3:,.1f} ms"),
                ("total", f"{one.seconds * 1e3:,.1f} ms"),
            ],
        ),
        (
            "the training",
            [
                ("steps", f"{steps:,}"),
                ("FLOPs", f"{steps * one.flops:.3g}"),
                ("time", _duration(seconds)),
                ("hours of one device", f"{seconds * devices.count / 3600:,.1f}"),
                ("gradients sent by each device", f"{steps * one.sent / 1e12:,.1f} TB"),
            ],
        ),
        (
            f"memory of a device, of {devices.memory / 1e9:,.0f} GB",
            [(part, f"{size / 1e9:,.2f} GB") for part, size in memory.items()]
            + [("total", f"{sum(memory.values()) / 1e9:,.2f} GB")],
        ),
    ]
    if pairs:
        sections.append(("the data", _data_rows(config, one, length, pairs)))
    return table(sections)


def _data_rows(config: Config, one: Step, length: int, pairs: int) -> list[tuple[str, str]]:
    """What the data takes."""
    tokens = pairs * length
    return [
        (f"pairs of {length} tokens a side", f"{pairs:,}"),
        ("prepared, on disk", f"{pairs * pair_bytes(config.model, length) / 1e9:,.1f} GB"),
        ("steps an epoch", f"{tokens / one.tokens:,.0f}"),
        ("epochs", f"{config.train.max_steps * one.tokens / tokens:,.3g}"),
        ("pairs a second", f"{one.tokens / length / one.seconds:,.0f}"),
    ]


def _duration(seconds: float) -> str:
    if seconds < 3600:
        return f"{seconds / 60:,.1f} minutes"
    return f"{seconds / 3600:,.1f} hours" if seconds < 100 * 3600 else f"{seconds / 86400:,.1f} days"
