#!/usr/bin/env python
"""Trains on a Ray cluster with Ray Train, one worker per node; the flags of launch.train follow `--`.

    python launch/cluster/ray_train.py --workers=4 --gpus=8 -- --data_dir=/shared/data --model_dir=/shared/run \
        --preset=big
    python launch/cluster/ray_train.py --dry_run ...      prints the command of each worker; so does DRY_RUN=1

Ray's TensorflowTrainer places the workers and sets TF_CONFIG for each worker. A worker then runs launch.train as a
separate program, with the usual signals and exit statuses. `--backend=jax` trains with Keras on JAX, which reads the
same TF_CONFIG. All nodes need this repository at `--directory`, a Python environment at `--python`, and the folders of
the data and the run. If a worker is lost, Ray restarts all workers, up to `--restarts` times. Ray cannot distinguish a
lost worker from invalid flags, so it also restarts after invalid flags.

Needs `pip install 'ray[train]'` on all nodes.
"""

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def command(config: dict[str, Any]) -> list[str]:
    """Returns the command of each worker."""
    flags = ["--cluster=tf_config"]
    if config["backend"] == "tensorflow":
        flags.insert(0, "--strategy=multiworker")
    return [config["python"], "-m", "launch.train", *flags, *config["flags"]]


def work(config: dict[str, Any]) -> None:
    """Runs a worker's training on its node; raises RuntimeError with the exit status if it fails."""
    process = subprocess.run(
        command(config),
        cwd=config["directory"],
        env={**os.environ, "KERAS_BACKEND": config["backend"]},
        preexec_fn=_stop_with_parent,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"launch.train ended with status {process.returncode}")


def _stop_with_parent() -> None:
    """Makes Linux send SIGTERM to this process when its parent ends, so that the training saves a checkpoint."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def train(options: argparse.Namespace, config: dict[str, Any]) -> None:
    """Starts the workers on Ray's nodes and waits for them."""
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.tensorflow import TensorflowTrainer
    except ModuleNotFoundError as error:
        sys.exit(f"error: the package {error.name} is missing: pip install 'ray[train]'")

    resources = {"CPU": options.cpus, **({"GPU": options.gpus} if options.gpus else {})}
    trainer = TensorflowTrainer(
        work,
        train_loop_config=config,
        scaling_config=ScalingConfig(
            num_workers=options.workers,
            use_gpu=bool(options.gpus),
            resources_per_worker=resources,
            placement_strategy="STRICT_SPREAD",  # one per node
        ),
        run_config=RunConfig(name=options.name, failure_config=FailureConfig(max_failures=options.restarts)),
    )
    trainer.fit()


def parse(arguments: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Returns the options of this program, and the configuration of the workers."""
    parser = argparse.ArgumentParser(description="Trains on a Ray cluster; the flags of launch.train follow --.")
    parser.add_argument("--workers", type=_at_least(1), default=2, help="number of workers, one per node (default: 2)")
    parser.add_argument("--gpus", type=_at_least(0), default=8, help="GPUs per worker; 0: none (default: 8)")
    parser.add_argument("--cpus", type=_at_least(1), default=32, help="CPUs per worker (default: 32)")
    parser.add_argument("--restarts", type=_at_least(0), default=6, help="maximum number of restarts (default: 6)")
    parser.add_argument("--name", default="t2t", help="name of the run in Ray's storage (default: t2t)")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument(
        "--directory", default=os.getcwd(), help="folder of this repository on every node (default: the current one)"
    )
    parser.add_argument("--python", default=".venv/bin/python", help="Python on every node, relative to --directory")
    parser.add_argument(
        "--dry_run",
        action="store_true",
        default=bool(os.environ.get("DRY_RUN")),
        help="only print the command of a worker; DRY_RUN=1 does the same",
    )
    parser.add_argument("flags", nargs="*", help="flags of launch.train")
    options = parser.parse_args(arguments)
    names = ("backend", "directory", "python", "flags")
    return options, {name: getattr(options, name) for name in names}


def _at_least(lowest: int) -> Callable[[str], int]:
    """Returns the type of a flag: whole numbers that are not smaller than `lowest`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {lowest}, got {text!r}")
        return int(text)

    return parse


def main() -> None:
    """Runs the program."""
    options, config = parse(sys.argv[1:])
    if options.dry_run:
        print(f"KERAS_BACKEND={config['backend']} {shlex.join(command(config))}")
        return
    train(options, config)


if __name__ == "__main__":
    main()
