"""A study: a table, the folder that holds its runs, and their state."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.machine.processes import call_in_process
from t2t_keras.studies.data_facts import FACTS, DataFacts, read_facts, write_facts
from t2t_keras.studies.job import Job
from t2t_keras.studies.paper_tables import TABLES
from t2t_keras.studies.performing import Performed, Performer
from t2t_keras.studies.states import State, state
from t2t_keras.studies.study_settings import FILES, StudySettings, write_settings


class Study:
    """A table and the jobs that produce it.

    Args:
        study_dir: folder of the study, which need not exist.
        settings: settings of the study.

    Attributes:
        data: facts about the data, from the data's directory if it exists, else from the study's folder. They are
            placeholders if the settings name no directory and the folder holds no facts.
        table: the table.

    Raises:
        InputError: the table is unknown, the data are not prepared, or settings are invalid.
    """

    def __init__(self, study_dir: pathlib.Path, settings: StudySettings) -> None:
        if settings.table not in TABLES:
            raise InputError(f"unknown table {settings.table!r}; valid: {', '.join(TABLES)}")
        self.study_dir = study_dir
        self.settings = settings
        data_dir = settings.data_dir
        opens_data = bool(data_dir) and (pathlib.Path(data_dir).exists() or not (study_dir / FACTS).exists())
        self.data = DataFacts.of(PreparedData.open(data_dir)) if opens_data else read_facts(study_dir)
        self.table = TABLES[settings.table](settings, self.data)

    def states(self) -> dict[str, State]:
        return {job.name: state(job, self.study_dir) for job in self.table.jobs}

    def selected(self, rows: Sequence[str] = (), shard: tuple[int, int] = (1, 1)) -> list[str]:
        """Returns the names of the selected jobs, in the order of the table.

        A job that needs one other job is in the same shard as that job. A job that needs several jobs is in every
        shard, and the process that finds them finished performs it.

        Args:
            rows: names of the table's lines; empty means all.
            shard: number of the shard, from 1, and number of shards.

        Raises:
            InputError: a row is unknown.
        """
        jobs_of_row = {line.name: line.jobs for line in self.table.lines}
        if unknown := [row for row in rows if row not in jobs_of_row]:
            raise InputError(f"table {self.settings.table} has no row {unknown[0]!r}; valid: {', '.join(jobs_of_row)}")
        selection = {job for row in rows or jobs_of_row for job in jobs_of_row[row]}
        number, count = shard
        shards: dict[str, int | None] = {}
        for job in self.table.jobs:
            if len(job.needs) > 1:
                shards[job.name] = None
            elif job.needs:
                shards[job.name] = shards[job.needs[0]]
            else:
                shards[job.name] = sum(not previous_job.needs for previous_job in map(self._job, shards)) % count + 1
        return [name for name, place in shards.items() if name in selection and place in (None, number)]

    def perform(
        self, names: Sequence[str], report: Callable[[str], None], call: Callable[..., Any] = call_in_process
    ) -> Performed:
        """Performs unfinished jobs, and rewrites the table whenever one is finished.

        Args:
            names: names of jobs, from `selected`.
            report: see `Performer`.
            call: see `Performer`.

        Raises:
            InputError: the table needs data and there are none, or a job's folder was trained with different settings.
            OSError: the folder cannot be written.
        """
        if self.table.needs_data and not self.settings.data_dir:
            raise InputError("--data_dir must be given to start a study")
        if self.table.needs_files and not self.settings.files:
            raise InputError(f"{', '.join(f'--{name}' for name in FILES)} must be given to start a study")
        if self.settings.files and not self.table.needs_files:
            raise InputError(f"--{FILES[0]}: --table={self.settings.table} takes --data_dir instead")
        if self.settings.winner and not self.table.needs_files:
            raise InputError(f"--winner: --table={self.settings.table} has no rows that use the text of another row")
        if self.table.needs_data:
            PreparedData.open(self.settings.data_dir)
        self._check(names)
        write_settings(self.study_dir, self.settings)
        if not self.table.needs_files:  # else the first row to prepare its text writes them
            write_facts(self.study_dir, self.data)
        result = Performer(self.study_dir, self.table.jobs, report, self.write, call).perform(names)
        self.write()
        return result

    def write(self) -> list[pathlib.Path]:
        """Writes the finished part of the table as Markdown, CSV and SVG, and returns the paths."""
        return self.table.write(self.states(), self.study_dir)

    def _check(self, names: Sequence[str]) -> None:
        """Raises an InputError, before anything is trained, if a row was trained with different settings."""
        states = {name: state(self._job(name), self.study_dir) for name in names}
        conflicting = {name: each.text for name, each in states.items() if each.kind == "conflicting"}
        if conflicting:
            name, text = next(iter(conflicting.items()))
            note = f" ({len(conflicting)} such rows)" if len(conflicting) > 1 else ""
            raise InputError(
                f"{self.study_dir / name} was trained with different settings: {text}{note}; use the old settings, "
                "remove that folder, or use a different --study_dir"
            )

    def _job(self, name: str) -> Job:
        return next(job for job in self.table.jobs if job.name == name)
