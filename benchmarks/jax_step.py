"""Compares the training speed of Keras on JAX with that of a plain PyTorch Transformer with torch.compile.

    python -m benchmarks.jax_step --preset=base --tokens_per_batch=25000 --dtype=bfloat16
    python -m benchmarks.jax_step --preset=tiny --tokens_per_batch=2048 --vocab_size=4000 --dtype=float32

Each engine runs in a separate process on the first device that it finds, with one batch of random tokens without
padding. The engines take turns. `products` computes only the matrix products of a step, with JAX, which is a lower
bound of the time. The share of the peak refers to the data sheet of the device, for bfloat16 and dense matrices. An
engine with missing packages is skipped with a note. The program does not need TensorFlow.
"""

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable

import numpy as np

from benchmarks.transformer_preset import plain_sizes, transformer_preset
from benchmarks.turns import Worker, number, serve, take_turns
from t2t_keras.machine.processor import processor

ENGINES = ("ours", "torch", "products")
SMOOTHING = 0.1
# Otherwise, the first process that uses JAX would allocate three quarters of the device's memory.
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# Operations per second in bfloat16 from data sheets, by a pattern in the name of the device.
PEAKS = {
    r"H100 80GB HBM3|H200": 989e12,
    r"H100 PCIe": 756e12,
    r"A100": 312e12,
    r"L4\b": 121e12,
    r"v5 lite": 197e12,
    r"v6 lite": 918e12,
}


def products_of(sizes: dict) -> list[tuple[int, int, int, int]]:
    """Returns the products of a forward pass: number, rows, inner width, columns; a backward pass has each twice."""
    d, ff, layers, heads = (sizes[key] for key in ("d_model", "d_ff", "num_layers", "num_heads"))
    rows, length = sizes["rows"], sizes["length"]
    tokens = rows * length
    linear = [(12 * layers, tokens, d, d), (2 * layers, tokens, d, ff), (2 * layers, tokens, ff, d)]
    attention = [
        (rows * heads * 3 * layers, length, d // heads, length),
        (rows * heads * 3 * layers, length, length, d // heads),
    ]
    return [*linear, *attention, (1, tokens, d, sizes["vocab_size"])]


def operations(sizes: dict) -> float:
    """Returns the multiplications and additions in the products of a step, forward and backward."""
    return 3.0 * sum(2.0 * count * rows * inner * columns for count, rows, inner, columns in products_of(sizes))


def random_batch(sizes: dict) -> dict[str, np.ndarray]:
    """Returns random sources and targets, int32 [rows, length] each, without padding."""
    rng = np.random.default_rng(1)
    shape = sizes["rows"], sizes["length"]
    return {side: rng.integers(3, sizes["vocab_size"], shape).astype(np.int32) for side in ("source", "target")}


def ours(sizes: dict) -> tuple[Callable[[], dict], int, str]:
    """t2t_keras: the step of its trainer, on JAX."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras

    from t2t_keras.config import TrainConfig, TransformerConfig
    from t2t_keras.models.transformer import Transformer
    from t2t_keras.training.on_jax.jax_devices import JaxDevices
    from t2t_keras.training.on_jax.jax_step import JaxStep

    if sizes["dtype"] == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    names = ("vocab_size", "d_model", "d_ff", "num_heads", "dropout_rate")
    layers = {f"num_{stack}_layers": sizes["num_layers"] for stack in ("encoder", "decoder")}
    model = Transformer(TransformerConfig(**{name: sizes[name] for name in names}, **layers))
    model.build()
    device = jax.devices()[0]
    step = JaxStep(model, TrainConfig(label_smoothing=SMOOTHING, static_shapes=True), JaxDevices([device]))
    batches = itertools.repeat(random_batch(sizes))

    def work() -> dict:
        return {"loss": float(step.run(batches, sizes["steps"]).loss[-1])}

    return work, model.count_params(), device.device_kind


def torch(sizes: dict) -> tuple[Callable[[], dict], int, str]:
    """torch.nn.Transformer with a tied embedding, compiled, with a fused Adam."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_float32_matmul_precision("high")  # TF32 on NVIDIA GPUs, JAX's default for float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    d_model, length = sizes["d_model"], sizes["length"]
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, d_model, 2)[None] / d_model)
    positions = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d_model)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(sizes["vocab_size"], d_model)
            nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
            self.register_buffer("positions", torch.tensor(positions, dtype=torch.float32))
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))
            self.dropout = nn.Dropout(sizes["dropout_rate"])
            layers = {f"num_{stack}_layers": sizes["num_layers"] for stack in ("encoder", "decoder")}
            self.layers = nn.Transformer(
                d_model,
                sizes["num_heads"],
                dim_feedforward=sizes["d_ff"],
                dropout=sizes["dropout_rate"],
                batch_first=True,
                **layers,
            )
            for module in self.layers.modules():  # the paper's base model has dropout only after each sub-layer
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
                    module.dropout.p = 0.0

        def embedded(self, ids):
            return self.dropout(self.embedding(ids) * d_model**0.5 + self.positions)

        def forward(self, source, target):
            shifted = functional.pad(target, (1, 0))[:, :-1]
            hidden = self.layers(self.embedded(source), self.embedded(shifted), tgt_mask=self.mask, tgt_is_causal=True)
            logits = hidden @ self.embedding.weight.T
            return functional.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=SMOOTHING)

    model = Network().to(device).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    source, target = (torch.from_numpy(ids).long().to(device) for ids in random_batch(sizes).values())
    narrow = torch.autocast(device, torch.bfloat16, enabled=sizes["dtype"] == "bfloat16")

    def work() -> dict:
        for _ in range(sizes["steps"]):
            optimizer.zero_grad(set_to_none=True)
            with narrow:
                loss = compiled(source, target)
            loss.backward()
            optimizer.step()
        return {"loss": loss.item()}

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return work, sum(weight.numel() for weight in model.parameters()), name


def products(sizes: dict) -> tuple[Callable[[], dict], int, str]:
    """Only the matrix products of the steps, with JAX; those of one kind in one loop."""
    import jax
    from jax import numpy as jnp

    dtype = sizes["dtype"]

    def one_kind(count: int, rows: int, inner: int, columns: int) -> Callable[[], jax.Array]:
        batch = count if rows * inner * columns < 2**20 else 1  # small products are batched, as in attention
        keys = jax.random.split(jax.random.key(1), 3)
        x, kernel, upstream = (
            jax.random.normal(key, (batch, *shape), dtype)
            for key, shape in zip(keys, ((rows, inner), (inner, columns), (rows, columns)), strict=True)
        )

        @jax.jit
        def all_products(x: jax.Array, kernel: jax.Array, upstream: jax.Array) -> jax.Array:
            def three(_: int, total: jax.Array) -> jax.Array:
                moved = x + total.astype(dtype)  # otherwise the compiler would compute them once
                results = (moved @ kernel, (upstream + total.astype(dtype)) @ kernel.mT, moved.mT @ upstream)
                return sum((jnp.float32(product[0, 0, 0]) for product in results), jnp.float32(0)) * 1e-9

            return jax.lax.fori_loop(0, count // batch, three, jnp.float32(0))

        return lambda: all_products(x, kernel, upstream)

    kinds = [one_kind(*kind) for kind in products_of(sizes)]

    def work() -> dict:
        for _ in range(sizes["steps"]):
            results = [kind() for kind in kinds]
        return {"loss": float(sum(results))}

    return work, 0, jax.devices()[0].device_kind


def main() -> None:
    """Runs the engines and prints the table; with the arguments ENGINE and SIZES, runs one engine as a worker."""
    if len(sys.argv) == 3 and sys.argv[1] in ENGINES:
        sizes = json.loads(sys.argv[2])
        work, parameters, device = {"ours": ours, "torch": torch, "products": products}[sys.argv[1]](sizes)
        work()
        serve(work, {"parameters": parameters, "device": device})
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base", help="sizes")
    parser.add_argument("--vocab_size", type=number(), default=37000)
    parser.add_argument("--tokens_per_batch", type=number(), default=25000)
    parser.add_argument("--length", type=number(), default=32, help="tokens per source and target")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--steps", type=number(), default=10, help="steps per turn")
    parser.add_argument("--rounds", type=number(), default=5)
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines, separated by commas")
    flags = parser.parse_args()
    model = transformer_preset(flags.preset)
    sizes = {**plain_sizes(model), "dropout_rate": model.dropout_rate}
    sizes |= {"vocab_size": flags.vocab_size, "dtype": flags.dtype}
    rows = max(flags.tokens_per_batch // flags.length // 8, 1) * 8  # as `train.static_shapes` has them
    sizes |= {"rows": rows, "length": flags.length, "steps": flags.steps}
    workers = []
    with tempfile.TemporaryDirectory() as folder:
        for engine in flags.engines.split(","):
            command = [sys.executable, "-m", "benchmarks.jax_step", engine, json.dumps(sizes)]
            worker = Worker(engine, command, os.path.join(folder, f"{engine}.log"), SHARING)
            if worker.failure:
                print(f"{engine} is skipped: {worker.failure}", file=sys.stderr)
            else:
                workers.append(worker)
        take_turns(workers, flags.rounds)
        report(workers, sizes)
        for worker in workers:
            worker.close()


def report(workers: list[Worker], sizes: dict) -> None:
    """Prints the table."""
    device = workers[0].about["device"]
    peak = next((rate for pattern, rate in PEAKS.items() if re.search(pattern, device)), None)
    tokens = sizes["rows"] * sizes["length"] * sizes["steps"]
    rates = {worker.name: tokens / worker.median("seconds") for worker in workers}
    print(f"{sizes}\n{device}{f' of {processor()}' if device == 'cpu' else ''}\n")
    print("| engine | target tokens/s | ours / it | ms/step | share of the peak | parameters | quiet turns |")
    print("|---|---|---|---|---|---|---|")
    for worker in workers:
        seconds = worker.median("seconds") / sizes["steps"]
        share = f"{operations(sizes) / seconds / peak:.2f}" if peak else "not known"
        ratio = f"{rates['ours'] / rates[worker.name]:.2f}" if "ours" in rates else ""
        print(
            f"| {worker.name} | {rates[worker.name]:,.0f} | {ratio} | {seconds * 1e3:,.1f} | {share} "
            f"| {worker.about['parameters']:,} | {len(worker.quiet_turns)} |"
        )


if __name__ == "__main__":
    main()
