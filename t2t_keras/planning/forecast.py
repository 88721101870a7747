"""Estimates the time, network traffic, memory and disk space of a training run on given devices.

Only the configuration is needed. Matrix products are assumed to run at an empirical share of the peak, and everything
else at the rate of the network or the memory.
"""

import dataclasses

from t2t_keras.config import Config, ModelConfig
from t2t_keras.planning.size import training_memory, two_columns

# The default share of the peak that a training run reaches, because tensor cores wait for memory and launches.
USUAL_UTILISATION = 0.2

_FLOAT_BYTES = 4
# A loop iteration launches about ten operations, and a launch takes at least ten microseconds.
_LOOP_SECONDS = 1e-4
# How often elements of an additive score's hidden layer are written or read, forward and backward.
_HIDDEN_PASSES = 8
_OFFSET_BYTES = 8
# Adam reads a gradient, a weight and two moments, and writes the weight and the moments.
_ADAM_PASSES = 7


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a training run.

    Attributes:
        name: kind of device.
        count: number of devices.
        flops: peak FLOP/s of one device for bfloat16 products.
        float32_flops: the same for float32 products as TensorFlow computes them, which is in TF32 on these GPUs.
        utilisation: share of the peak that the training run reaches.
        memory: memory of one device, in bytes.
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


# From the manufacturers' data sheets: products in bfloat16 and TF32 without sparsity, and NVLink in one direction or
# the links between TPU chips. A TPU multiplies float32 as bfloat16 unless told otherwise.
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
        tokens: tokens per side, padding included.
        flops: FLOPs of all devices together.
        sent: bytes of gradients that each device sends.
        products: seconds for matrix products.
        loops: seconds for launching the iterations of loops over time.
        hidden_scores: seconds for the hidden layers of additive attention scores.
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
        """Total seconds. Nothing overlaps, because the gradients are summed only once all of them are computed."""
        return self.products + self.loops + self.hidden_scores + self.all_reduce + self.update


def step(config: Config, devices: Devices, length: int) -> Step:
    """Returns the cost of one update.

    Float32 gradients are summed by a ring all-reduce, in which each of n devices sends 2 (n - 1) / n of their bytes.
    """
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
    """Returns the FLOPs of one update, padding included."""
    train = config.train
    return train.tokens_per_batch * train.passes * sum(config.model.training_flops(length).values())


def peak(config: Config, devices: Devices) -> float:
    """Returns the peak FLOP/s of one device for products in the configuration's dtype."""
    return devices.flops if config.train.mixed_bfloat16 else devices.float32_flops


def hidden_score_seconds(config: Config, memory_rate: float, length: int) -> float:
    """Returns the seconds that the hidden layers of additive scores take in one update on one device."""
    elements = config.train.tokens_per_batch * config.train.passes * config.model.hidden_scores(length)
    return _HIDDEN_PASSES * (2 if config.train.mixed_bfloat16 else _FLOAT_BYTES) * elements / memory_rate


def activation_memory(config: Config, length: int) -> int:
    """Returns the bytes of `ModelConfig.kept_activations` in the dtypes of the configuration.

    They are per source and target token, for sentences of `length` tokens.
    """
    sizes = config.model.kept_activations(length)
    return (2 if config.train.mixed_bfloat16 else _FLOAT_BYTES) * sizes.computed + _FLOAT_BYTES * sizes.float32


def pair_bytes(model: ModelConfig, length: int) -> int:
    """Returns the bytes of a prepared pair on disk: token ids of 16 or 32 bits, and an offset for each side."""
    id_bytes = 2 if max(model.vocab_size, model.source_entries) <= 2**16 else 4
    return 2 * (length * id_bytes + _OFFSET_BYTES)


def forecast(config: Config, devices: Devices, length: int, pairs: int) -> str:
    """Returns a table of the cost of a training run on given devices, as lines of text.

    `length` is the number of tokens of a sentence, end symbol included. If `pairs` is 0, the table has no section on
    the data.
    """
    costs = step(config, devices, length)
    steps = config.train.max_steps
    seconds = steps * costs.seconds
    activations = activation_memory(config, length) * costs.tokens / devices.count / config.train.accumulation_steps
    memory = {**training_memory(config), "activations": activations}
    rate = f"{devices.utilisation:.0%} of {peak(config, devices) / 1e12:,.0f} TFLOP/s"
    waiting = [("launching loops over time", costs.loops), ("additive scores", costs.hidden_scores)]
    sections = [
        (
            f"one step on {devices.count} x {devices.name} at {rate}",
            [
                ("tokens per side, padding included", f"{costs.tokens:,}"),
                ("FLOPs", f"{costs.flops:.3g}"),
                ("products", f"{costs.products * 1e3:,.1f} ms"),
                *((name, f"{seconds * 1e3:,.1f} ms") for name, seconds in waiting if seconds),
                (f"summing gradients, {costs.sent / 1e6:,.0f} MB per device", f"{costs.all_reduce * 1e3:,.1f} ms"),
                ("Adam", f"{costs.update * 1e3:,.1f} ms"),
                ("total", f"{costs.seconds * 1e3:,.1f} ms"),
            ],
        ),
        (
            "the training",
            [
                ("steps", f"{steps:,}"),
                ("FLOPs", f"{steps * costs.flops:.3g}"),
                ("time", _duration(seconds)),
                ("device hours", f"{seconds * devices.count / 3600:,.1f}"),
                ("gradients sent by each device", f"{steps * costs.sent / 1e12:,.1f} TB"),
            ],
        ),
        (
            f"memory per device, of {devices.memory / 1e9:,.0f} GB",
            [(part, f"{size / 1e9:,.2f} GB") for part, size in memory.items()]
            + [("total", f"{sum(memory.values()) / 1e9:,.2f} GB")],
        ),
    ]
    if pairs:
        sections.append(("the data", _data_rows(config, costs, length, pairs)))
    return two_columns(sections)


def _data_rows(config: Config, costs: Step, length: int, pairs: int) -> list[tuple[str, str]]:
    tokens = pairs * length
    return [
        (f"pairs of {length} tokens per side", f"{pairs:,}"),
        ("prepared, on disk", f"{pairs * pair_bytes(config.model, length) / 1e9:,.1f} GB"),
        ("steps per epoch", f"{tokens / costs.tokens:,.0f}"),
        ("epochs", f"{config.train.max_steps * costs.tokens / tokens:,.3g}"),
        ("pairs per second", f"{costs.tokens / length / costs.seconds:,.0f}"),
    ]


def _duration(seconds: float) -> str:
    if seconds < 3600:
        return f"{seconds / 60:,.1f} minutes"
    return f"{seconds / 3600:,.1f} hours" if seconds < 100 * 3600 else f"{seconds / 86400:,.1f} days"
