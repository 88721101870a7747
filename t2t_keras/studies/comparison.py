"""Compares two trainings on the validation set, and prepares the text of a training: a job and two phases."""

import dataclasses
import pathlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.machine.standard_error import tell
from t2t_keras.studies.data_facts import FACTS, DataFacts, write_facts
from t2t_keras.studies.job import Job
from t2t_keras.studies.training_job import TrainingJob, changes_of_others


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonJob(Job):
    """Compares the validation outputs of two trainings by a paired bootstrap.

    Attributes:
        members: the training to compare with, and the training to compare.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.comparison:compare",)

    members: tuple[TrainingJob, TrainingJob]

    @classmethod
    def of(cls, base: TrainingJob, other: TrainingJob) -> "ComparisonJob":
        """Returns the job that compares `other` with `base`, in the folder of the row of `other`."""
        row, _, seed = other.name.rpartition("/")
        return cls(name=f"{row}/{seed}_compared", needs=(base.name, other.name), members=(base, other))

    def settings(self) -> dict[str, Any]:
        return {"members": {member.name: member.settings() for member in self.members}}

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        return changes_of_others("members", before["members"], self.members)


def prepare_text(job: Any, study_dir: pathlib.Path) -> dict[str, Any]:
    """Prepares the text of a `RecipeJob`, unless a row with the same text has prepared it.

    The facts about the first text that is prepared are those of the study, whose plans need the length of sentences.
    """
    train_source, train_target, valid_source, valid_target = map(Path, job.files)
    paths = {"train": (train_source, train_target), "valid": (valid_source, valid_target)}
    data = prepare(corpora.files(paths), job.config.data, study_dir / job.data_dir, tell)
    if not (study_dir / FACTS).exists():
        write_facts(study_dir, DataFacts.of(data))
    return {}


def compare(job: ComparisonJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Compares the outputs that the evaluations of both trainings wrote.

    Returns:
        "difference": BLEU of the second training minus that of the first.
        "p_value": p of sacreBLEU's paired bootstrap.

    Raises:
        InputError: an evaluation is missing, or the trainings have different references.
    """
    from t2t_keras.tasks.translation_scores import paired_bootstrap  # imports sacreBLEU

    outputs, references = [], []
    for member in job.members:
        path = study_dir / member.name / "evaluation" / "valid" / "hypotheses.txt"
        if not path.exists():
            raise InputError(f"{path} is missing; to evaluate {member.name} again, delete its record")
        outputs.append(path.read_text(encoding="utf-8").splitlines())
        data = PreparedData.open(study_dir / member.data_dir)
        references.append(data.text("valid")[1])
    if references[0] != references[1]:
        raise InputError(f"{job.members[0].name} and {job.members[1].name} have different validation references")
    base, other = outputs
    difference, p_value = paired_bootstrap(base, other, references[0], data.config.target_language)
    return {"difference": difference, "p_value": p_value}
