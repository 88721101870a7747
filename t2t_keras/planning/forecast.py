"""Estimates of a training's time, traffic, memory and disk on given devices, from the configuration alone.

Products run at a share of the peak known from experience, everything else at the rate of the wire or the memory.
"""

import dataclasses

from t2t_keras.config import Config, ModelConfig
from t2t_keras.planning.size import training_memory, two_columns

# The share of a peak that a training reaches where nothing else is known: tensor cores wait for everything around them.
USUAL_UTILISATION = 0.2

_FLOAT_BYTES = 4
# An iteration of a loop starts some ten operations, each of which takes at least ten microseconds to start.
_LOOP_SECONDS = 1e-4
# Elements of an additive score's hidden layer are written and read so often, forward and backward.
_HIDDEN_PASSES = 8
_OFFSET_BYTES = 8
# Adam reads a gradient, a weight and two moments, and writes the latter three.
_ADAM_PASSES = 7


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a training.

    Attributes:
        name: kind of device.
        count: number of devices.
        flops: peak floating-point operations a second of one device in products of bfloat16.
        float32_flops: the same in products of float32, as TensorFlow makes them: in TF32 on these GPUs.
        utilisation: share of that peak that a training reaches.
        memory: bytes of one device.
        memory_rate: bytes per second that one device reads or writes in its memory.
        link_rate: bytes per second that one device sends to the others.
    """

    name: str
    count: int
    flops: float
    float32_flops: float
    utilisation: float
    memory: float
    memory_rate: float
    link_rate: float


# From the makers' data sheets: products in bfloat16 and TF32 without sparsity, NVLink in one direction, or links
# between chips. A TPU multiplies float32 as bfloat16 unless it is told otherwise.
KINDS = {
    "a100": {"flops": 312e12, "float32_flops": 156e12, "memory": 80e9, "memory_rate": 2.04e12, "link_rate": 300e9},
    "h100": {"flops": 989e12, "float32_flops": 494e12, "memory": 80e9, "memory_rate": 3.35e12, "link_rate": 450e9},
    "h200": {"flops": 989e12, "float32_flops": 494e12, "memory": 141e9, "memory_rate": 4.8e12, "link_rate": 450e9},
    "tpu_v5e": {"flops": 197e12, "float32_flops": 197e12, "memory": 16e9, "memory_rate": 0.82e12, "link_rate": 100e9},
}


@dataclasses.dataclass(frozen=True)
class Step:
    """The cost of one update on all devices.

    Attributes:
        tokens: per side, padding included.
        flops: floating-point operations of all devices.
        sent: bytes of gradients that each device sends.
        products: seconds for the products.
        loops: seconds for starting the iterations of loops over time.
        hidden_scores: seconds for the hidden layers of additive scores.
        all_reduce: seconds for summing the gradients.
        update: seconds for Adam.
    """

    tokens: int
    flops: float
    sent: float
    products: float
    loops: float
    hidden_scores: float
    all_reduce: float
    update: float

    @property
    def seconds(self) -> float:
        """Seconds in all; nothing overlaps, because the gradients are summed once all are there."""
        return self.products + self.loops + self.hidden_scores + self.all_reduce + self.update


def step(config: Config, devices: Devices, length: int) -> Step:
    """The cost of one update. Float32 gradients go round a ring: each of n devices sends 2 (n - 1) / n of them."""
    flops = update_flops(config, length)
    gradients = _FLOAT_BYTES * sum(config.model.parameter_counts().values())
    sent = 2 * (devices.count - 1) / devices.count * gradients
    return Step(
        config.train.tokens_per_batch,
        flops,
        sent,
        flops / (devices.count * peak(config, devices) * devices.utilisation),
        config.train.passes * config.train.accumulation_steps * config.model.loop_iterations(length) * _LOOP_SECONDS,
        hidden_score_seconds(config, devices.memory_rate, length) / devices.count,
        sent / devices.link_rate,
        _ADAM_PASSES * gradients / devices.memory_rate,
    )


def update_flops(config: Config, length: int) -> float:
    """The operations of one update, padding included."""
    train = config.train
    return train.tokens_per_batch * train.passes * sum(config.model.training_flops(length).values())


def peak(config: Config, devices: Devices) -> float:
    """The peak of one device in products of the configuration's dtype."""
    return devices.flops if config.train.mixed_bfloat16 else devices.float32_flops


def hidden_score_seconds(config: Config, memory_rate: float, length: int) -> float:
    """The time of an update for the hidden layers of additive scores, on one device."""
    elements = config.train.tokens_per_batch * config.train.passes * config.model.hidden_scores(length)
    return _HIDDEN_PASSES * (2 if config.train.mixed_bfloat16 else _FLOAT_BYTES) * elements / memory_rate


def activation_memory(config: Config, length: int) -> int:
    """Bytes of `ModelConfig.kept_activations` for one source and one target token, in sentences of `length` tokens."""
    kept = config.model.kept_activations(length)
    return (2 if config.train.mixed_bfloat16 else _FLOAT_BYTES) * kept.computed + _FLOAT_BYTES * kept.float32


def pair_bytes(model: ModelConfig, length: int) -> int:
    """Bytes of a prepared pair on disk: ids of 16 or 32 bits, and the offset of each side."""
    id_bytes = 2 if max(model.vocab_size, model.source_entries) <= 2**16 else 4
    return 2 * (length * id_bytes + _OFFSET_BYTES)


def forecast(config: Config, devices: Devices, length: int, pairs: int) -> str:
    """A table of what a training costs on devices, as lines of text.

    `length` is the tokens of a sentence, end symbol included; 0 `pairs` leave out the data.
    """
    one = step(config, devices, length)
    steps = config.train.max_steps
    seconds = steps * one.seconds
    kept = activation_memory(config, length) * one.tokens / devices.count / config.train.accumulation_steps
    memory = {**training_memory(config), "activations": kept}
    most = f"{devices.utilisation:.0%} of {peak(config, devices) / 1e12:,.0f} TFLOP/s"
    waiting = [("starting loops over time", one.loops), ("additive scores", one.hidden_scores)]
    sections = [
        (
            f"a step on {devices.count} x {devices.name} at {most}",
            [
                ("tokens of a side, padding included", f"{one.tokens:,}"),
                ("FLOPs", f"{one.flops:.3g}"),
                ("products", f"{one.products * 1e3:,.1f} ms"),
                *((name, f"{seconds * 1e3:,.1f} ms") for name, seconds in waiting if seconds),
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
    return two_columns(sections)


def _data_rows(config: Config, one: Step, length: int, pairs: int) -> list[tuple[str, str]]:
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
