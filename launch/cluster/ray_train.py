#!/usr/bin/env python
"""Trains on a Ray cluster with Ray Train, one worker a node: give it the flags of launch.train after `--`.

    python launch/cluster/ray_train.py --workers=4 --gpus=8 -- --data_dir=/shared/data --model_dir=/shared/run \
        --preset=big
    python launch/cluster/ray_train.py --dry_run ...      prints what each worker would run; so does DRY_RUN=1

Ray's TensorflowTrainer places the workers and sets TF_CONFIG in each; a worker then runs launch.train as a program of
its own, so that its signals and exit statuses are what they are elsewhere. `--backend=jax` trains with Keras on JAX,
which reads the same TF_CONFIG. All nodes need this repository at `--directory`, a Python environment at `--python`, and
the folders of data and run. A worker that was lost has all of them started again, `--restarts` times; Ray cannot tell
that from a mistake in the flags, which is therefore tried again too.

Needs `pip install 'ray[train]'` on all nodes.
"""

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def command(config: dict[str, Any]) -> list[str]:
    """What each worker runs."""
    flags = ["--cluster=tf_config"]
    if config["backend"] == "tensorflow":
        flags.insert(0, "--strategy=multiworker")
    return [config["python"], "-m", "launch.train", *flags, *config["flags"]]


def work(config: dict[str, Any]) -> None:
    """Runs a worker's training, on its node; a RuntimeError has its exit status."""
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
    """Has Linux send SIGTERM to this process when Ray ends the one that started it: the training saves then."""
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
            placement_strategy="STRICT_SPREAD",  # one a node
        ),
        run_config=RunConfig(name=options.name, failure_config=FailureConfig(max_failures=options.restarts)),
    )
    trainer.fit()


def parse(arguments: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The options of this program, and what workers are told."""
    parser = argparse.ArgumentParser(description="Trains on a Ray cluster; the flags of launch.train follow --.")
    parser.add_argument("--workers", type=int, default=2, help="one a node (default: 2)")
    parser.add_argument("--gpus", type=int, default=8, help="of each worker; 0: none (default: 8)")
    parser.add_argument("--cpus", type=int, default=32, help="of each worker (default: 32)")
    parser.add_argument("--restarts", type=int, default=6, help="starts after the first one (default: 6)")
    parser.add_argument("--name", default="t2t", help="of the run in Ray's own storage (default: t2t)")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--directory", default=os.getcwd(), help="this repository on every node (default: here)")
    parser.add_argument("--python", default=".venv/bin/python", help="on every node, from there")
    parser.add_argument(
        "--dry_run",
        action="store_true",
        default=bool(os.environ.get("DRY_RUN")),
        help="print the command of a worker and leave it at that; DRY_RUN=1 does the same",
    )
    parser.add_argument("flags", nargs="*", help="of launch.train")
    options = parser.parse_args(arguments)
    names = ("backend", "directory", "python", "flags")
    return options, {name: getattr(options, name) for name in names}


def main() -> None:
    """Runs the program."""
    options, config = parse(sys.argv[1:])
    if options.dry_run:
        print(f"KERAS_BACKEND={config['backend']} {shlex.join(command(config))}")
        return
    train(options, config)


if __name__ == "__main__":
    main()
