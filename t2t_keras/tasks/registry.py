"""The registry of tasks."""

import functools

from t2t_keras.errors import InputError
from t2t_keras.tasks.classification_task import ClassificationTask
from t2t_keras.tasks.denoising_task import DenoisingTask
from t2t_keras.tasks.parsing.parsing_task import ParsingTask
from t2t_keras.tasks.question_answering_task import QuestionAnsweringTask
from t2t_keras.tasks.summarisation_task import SummarisationTask
from t2t_keras.tasks.tagging_task import TaggingTask
from t2t_keras.tasks.task import Task
from t2t_keras.tasks.translation_task import TranslationTask

_ALL = (
    TranslationTask,
    ParsingTask,
    SummarisationTask,
    ClassificationTask,
    TaggingTask,
    QuestionAnsweringTask,
    DenoisingTask,
)
TASKS: dict[str, type[Task]] = {kind.name: kind for kind in _ALL}


@functools.cache
def task(name: str) -> Task:
    """Returns a task by name; raises an `InputError` with the known names if there is none."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; valid: {', '.join(TASKS)}")
    return TASKS[name]()
