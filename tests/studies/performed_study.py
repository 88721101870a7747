"""Studies that run in the test process, and checks of their records."""

import json
import math

import pytest

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData
from t2t_keras.machine.processes import ProcessDiedError
from t2t_keras.studies.study import Study


class InProcess:
    """Runs phases in this process and records them; phases in `deadly` are killed instead."""

    def __init__(self, *deadly: tuple[str, str]) -> None:
        self.deadly = deadly
        self.calls: list[tuple[str, str]] = []

    def __call__(self, function, phase, job, study_dir, *, started):
        started()
        self.calls.append((phase.partition(":")[2], job.name))
        if self.calls[-1] in self.deadly:
            raise ProcessDiedError(-9)
        return function(phase, job, study_dir)


class PerformedStudy:
    """A study that was run once, with its phases, messages and status."""

    def __init__(self, study: Study, *deadly: tuple[str, str], rows=(), shard=(1, 1)) -> None:
        here = InProcess(*deadly)
        self.said: list[str] = []
        self.performed = study.perform(study.selected(rows, shard), self.said.append, here)
        self.calls = here.calls


def record(study: Study, job: str) -> dict:
    return json.loads((study.study_dir / job / "row.json").read_text(encoding="utf-8"))["results"]


def config_of(study: Study, name: str) -> Config:
    (config,) = [job.config for job in study.table.jobs if job.name == name and job.config]
    return config


def check_costs(study: Study, results: dict, config: Config, data: PreparedData) -> None:
    counts = data.counts["train"]
    length = math.ceil((counts["source_tokens"] + counts["target_tokens"]) / 2 / counts["kept"])
    pairs = results["target_tokens"] * (counts["source_tokens"] / counts["target_tokens"] + 1) / 2
    assert results["flops_by_count"] == pytest.approx(pairs * sum(config.model.training_flops(length).values()))
    (noted,) = (study.study_dir / "machines").iterdir()
    rate = results["matrix_flops_per_second"]
    assert 0 < rate <= json.loads(noted.read_text(encoding="utf-8"))["flops_per_second"]
    assert results["flops_by_time"] == pytest.approx(3600 * results["hours"] * rate)
