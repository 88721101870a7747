"""What a study will take: parameters, operations and hours of each row, before anything is trained."""

import pathlib
from collections.abc import Callable, Mapping

from t2t_keras.config import Config
from t2t_keras.machine.notices import without_notices
from t2t_keras.machine.processes import call_apart
from t2t_keras.machine.processor import processor
from t2t_keras.planning.forecast import Devices, hidden_score_seconds, step, update_flops
from t2t_keras.studies.matrix_rate import noted_rate
from t2t_keras.studies.states import State
from t2t_keras.studies.table import Table, markdown_table, missing_of

# Bytes a second that two cores copy, where nothing else is known of them.
_MEMORY_RATE = 20e9
_HEAD = ["row", "parameters", "updates", "FLOPs", "hours", "state"]


def plan(table: Table, states: Mapping[str, State], length: int, seconds: Callable[[Config], float]) -> str:
    """The rows with what each training takes, as Markdown; trainings of one row are added up.

    `states` are those of every job by name, `length` is in tokens of a sentence, and `seconds` estimates a training.
    """
    jobs = {job.name: job for job in table.jobs}
    rows, hours = [], 0.0
    for line in table.lines:
        configs = [(jobs[name], config) for name in line.jobs if (config := jobs[name].config)]
        state = missing_of(line, states) or ("finished" if line.jobs else "published")
        if not configs:
            rows.append([line.name, "", "", "", "", state])
            continue
        taken = sum(seconds(config) for _, config in configs) / 3600
        hours += sum(seconds(config) for job, config in configs if states[job.name].kind != "finished") / 3600
        first = configs[0][1]
        flops = sum(planned_flops(config, length) for _, config in configs)
        parameters = sum(first.model.parameter_counts().values())
        updates = f"{first.train.max_steps:,}" + (f" x {len(configs)}" if len(configs) > 1 else "")
        rows.append([line.name, f"{parameters:,}", updates, scientific(flops), _hours(taken), state])
    return f"{markdown_table([_HEAD, *rows])}\n\nHours of what is not finished: {_hours(hours)}."


def planned_flops(config: Config, length: int) -> float:
    """Operations of a training, padding included."""
    return config.train.max_steps * update_flops(config, length)


def scientific(number: float) -> str:
    """A number such as 2.3e19, as in the paper's Table 2."""
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _hours(hours: float) -> str:
    """Two digits at least."""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def seconds_on(devices: Devices, length: int) -> Callable[[Config], float]:
    """The time of a training on devices, by `planning.forecast`."""
    return lambda config: config.train.max_steps * step(config, devices, length).seconds


def seconds_here(
    table: Table, states: Mapping[str, State], study_dir: pathlib.Path, utilisation: float, length: int
) -> tuple[Callable[[Config], float], str]:
    """The time of a training on the machine at hand, and a sentence that says what the estimate is made from.

    The finished trainings say how many operations a second they reached: those of the same family of models, or all.
    Before there are any, trainings are taken to reach the share `utilisation` of what a product of matrices reaches on
    this machine's processor, or its GPUs. Of the trainings behind docs/tables those in float32 reached 0.40 to 0.69,
    those with additive scores 0.10 to 0.31.
    """
    flops: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for job in table.jobs:
        if job.config and not job.needs and states[job.name].kind == "finished":
            results, most = states[job.name].results, job.config.train.max_steps
            made = results.get("updates", most) / most  # patience or minutes may have ended it before
            for kind in (job.config.model.family, _ALL):
                taken = 3600 * results["hours"]
                flops[kind] = flops.get(kind, 0.0) + made * planned_flops(job.config, length)
                scores = made * _for_scores(job.config, length)
                seconds[kind] = seconds.get(kind, 0.0) + max(taken - scores, taken / 2)
    if seconds:
        rates = {kind: flops[kind] / seconds[kind] for kind in flops}
        source = f"Hours are at what the finished rows reached: {scientific(rates[_ALL])} FLOP/s on average."
    else:
        noted = noted_rate(study_dir, processor())
        machine, measured = (processor(), noted) if noted else measured_rate()
        rates = {_ALL: utilisation * measured}
        source = (
            f"Hours are at {scientific(rates[_ALL])} FLOP/s, {utilisation:.0%} of a product of matrices on {machine}."
        )

    def seconds_of(config: Config) -> float:
        products = planned_flops(config, length) / rates.get(config.model.family, rates[_ALL])
        return products + _for_scores(config, length)

    return seconds_of, source


def _for_scores(config: Config, length: int) -> float:
    """Seconds of a training for the hidden layers of additive scores."""
    return config.train.max_steps * hidden_score_seconds(config, _MEMORY_RATE, length)


def measured_rate() -> tuple[str, float]:
    """What trains here, and the operations a second of TensorFlow's products, measured in a process of its own."""
    return call_apart(_measured_rate)


def _measured_rate() -> tuple[str, float]:
    with without_notices():
        from t2t_keras.studies import phases  # imports TensorFlow
    return phases.matrix_flops_per_second()


_ALL = "all families"
