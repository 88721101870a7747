"""Estimates the parameters, operations and hours of each row of a study before training."""

import pathlib
from collections.abc import Callable, Mapping

from t2t_keras.config import Config
from t2t_keras.machine.notices import without_notices
from t2t_keras.machine.processes import call_in_process
from t2t_keras.machine.processor import processor
from t2t_keras.planning.forecast import Devices, hidden_score_seconds, step, update_flops
from t2t_keras.studies.matrix_rate import stored_rate
from t2t_keras.studies.states import State
from t2t_keras.studies.table import Table, markdown_table, missing_of

# Memory bandwidth in bytes per second that is assumed for the machine at hand; two cores reach about as much.
_MEMORY_RATE = 20e9
_ALL = "all families"
_HEAD = ["row", "parameters", "updates", "FLOPs", "hours", "state"]


def plan(table: Table, states: Mapping[str, State], length: int, seconds: Callable[[Config], float]) -> str:
    """Returns a Markdown table with the estimated costs of each row, summed over the trainings of the row.

    Args:
        table: the table.
        states: states of all jobs by name.
        length: tokens per sentence.
        seconds: estimates the seconds of a training.
    """
    jobs = {job.name: job for job in table.jobs}
    rows, hours = [], 0.0
    for line in table.lines:
        configs = [(jobs[name], config) for name in line.jobs if (config := jobs[name].config)]
        state = missing_of(line, states) or ("finished" if line.jobs else "published")
        if not configs:
            rows.append([line.name, "", "", "", "", state])
            continue
        line_hours = sum(seconds(config) for _, config in configs) / 3600
        hours += sum(seconds(config) for job, config in configs if states[job.name].kind != "finished") / 3600
        first = configs[0][1]
        flops = sum(planned_flops(config, length) for _, config in configs)
        parameters = sum(first.model.parameter_counts().values())
        updates = f"{first.train.max_steps:,}" + (f" x {len(configs)}" if len(configs) > 1 else "")
        rows.append([line.name, f"{parameters:,}", updates, scientific(flops), _hours(line_hours), state])
    return f"{markdown_table([_HEAD, *rows])}\n\nHours of unfinished rows: {_hours(hours)}."


def planned_flops(config: Config, length: int) -> float:
    """Returns the number of operations of a training, padding included."""
    return config.train.max_steps * update_flops(config, length)


def scientific(number: float) -> str:
    """Formats a number like 2.3e19."""
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _hours(hours: float) -> str:
    """Formats hours with two significant digits below 1, and one decimal from 1."""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def seconds_on(devices: Devices, length: int) -> Callable[[Config], float]:
    """Returns a function that estimates the seconds of a training on the given devices; see `planning.forecast`."""
    return lambda config: config.train.max_steps * step(config, devices, length).seconds


def seconds_here(
    table: Table, states: Mapping[str, State], study_dir: pathlib.Path, utilisation: float, length: int
) -> tuple[Callable[[Config], float], str]:
    """Returns a function that estimates the seconds of a training on this machine, and a sentence about its basis.

    The estimate uses the operations per second that finished trainings reached: those of the same model family, or else
    of all families. If none is finished, trainings are assumed to reach the fraction `utilisation` of the
    matrix-product throughput of this machine's processor or GPUs. The trainings behind docs/tables reached 0.40 to 0.69
    in float32, and 0.10 to 0.31 with additive attention scores.
    """
    flops: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for job in table.jobs:
        if job.config and not job.needs and states[job.name].kind == "finished":
            results, limit = states[job.name].results, job.config.train.max_steps
            share = results.get("updates", limit) / limit  # patience or a time limit may have ended it early
            for kind in (job.config.model.family, _ALL):
                duration = 3600 * results["hours"]
                flops[kind] = flops.get(kind, 0.0) + share * planned_flops(job.config, length)
                scores = share * _score_seconds(job.config, length)
                seconds[kind] = seconds.get(kind, 0.0) + max(duration - scores, duration / 2)
    if seconds:
        rates = {kind: flops[kind] / seconds[kind] for kind in flops}
        source = f"Hours assume the speed of the finished rows, {scientific(rates[_ALL])} FLOP/s on average."
    else:
        rate = stored_rate(study_dir, processor())
        machine, throughput = (processor(), rate) if rate else measured_rate()
        rates = {_ALL: utilisation * throughput}
        source = (
            f"Hours assume {scientific(rates[_ALL])} FLOP/s, {utilisation:.0%} of the throughput of matrix products on "
            f"{machine}."
        )

    def seconds_of(config: Config) -> float:
        products = planned_flops(config, length) / rates.get(config.model.family, rates[_ALL])
        return products + _score_seconds(config, length)

    return seconds_of, source


def _score_seconds(config: Config, length: int) -> float:
    """Returns the seconds that a training spends on the hidden layers of additive attention scores."""
    return config.train.max_steps * hidden_score_seconds(config, _MEMORY_RATE, length)


def measured_rate(dtype: str = "float32") -> tuple[str, float]:
    """Returns this machine's devices and their matrix-product throughput, measured in a separate process."""
    return call_in_process(_measured_rate, dtype)


def _measured_rate(dtype: str) -> tuple[str, float]:
    with without_notices():
        from t2t_keras.studies import phases  # imports TensorFlow
    return phases.matrix_flops_per_second(dtype)
