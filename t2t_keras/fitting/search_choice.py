"""Chooses the weights and the search settings of a run by its score on validation sentences."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.streams import share_out_cores
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import assign_weights
from t2t_keras.runs import averaging, checkpoints
from t2t_keras.runs.load import load_model, load_weights
from t2t_keras.runs.run import Run, weights_path
from t2t_keras.text.languages import language_of
from t2t_keras.text.tokenizer import Tokenizer

Arrays = Mapping[str, np.ndarray]


class Trial(NamedTuple):
    """The result of a search with some weights and settings.

    Attributes:
        weights: name of the checkpoint or the average.
        decode: the decoding settings.
        score: the score of the run's task, such as BLEU.
        seconds: duration of the search, without the first sentence, which traces the graph.
    """

    weights: str
    decode: DecodeConfig
    score: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class SearchGrid:
    """The weights and the settings to compare.

    Attributes:
        averages: numbers of newest checkpoints to average; None means 5, 10 and 20, if the run has that many.
        beam_sizes: the values of `decode.beam_size`.
        penalties: changes to the decoding settings that determine the score of a hypothesis, by name.
    """

    averages: tuple[int, ...] | None
    beam_sizes: tuple[int, ...]
    penalties: tuple[Mapping[str, Any], ...]

    def searches(self, decode: DecodeConfig) -> list[DecodeConfig]:
        """Returns the combinations of beams and penalties, by increasing beam; greedy search has no penalty.

        Raises:
            InputError: a value is invalid, or samples are drawn instead of a search.
        """
        if decode.sampling:
            raise InputError("decode.sampling=true: samples are drawn, so there is no search to choose")
        return [
            dataclasses.replace(decode, beam_size=beam_size, **penalty)
            for beam_size in sorted(self.beam_sizes)
            for penalty in (self.penalties if beam_size > 1 else ({},))
        ]


class SearchChoice:
    """Compares weights and search settings of a run.

    Args:
        run: the run.
        text: sources and references.
        report: called with each trial.

    Attributes:
        trials: all trials so far. The first one has the weights and the settings of the run.

    Raises:
        InputError: the run has no usable checkpoint.
    """

    def __init__(self, run: Run, text: tuple[Sequence[str], Sequence[str]], report: Callable[[Trial], object]) -> None:
        self._run, self._report = run, report
        self._sources, self._references = text
        self._language = language_of(list(self._references), run.config.data.target_language)
        self._current = weights_path(run)
        self._model: SequenceModel
        self._model, self._config, vocab_path = load_model(run.path, str(self._current))
        self._tokenizer = Tokenizer.load(vocab_path)
        self.trials: list[Trial] = []
        if not tf.config.list_physical_devices("GPU"):
            share_out_cores()

    def choose(self, grid: SearchGrid) -> Trial:
        """Compares the weights with the run's settings, then the settings with the best weights; stores the best.

        Scores are compared to two decimals. Ties go to the run's own weights and settings, then to fewer checkpoints
        and to smaller beams. If an average is best, it is saved, and becomes the run's newest average.

        Raises:
            InputError: the run has fewer checkpoints than an average needs, or a setting is invalid.
        """
        decode = self._config.decode
        searches = grid.searches(decode)
        steps = checkpoints.steps(self._run.checkpoints_path)
        averages = grid.averages
        if averages is None:
            averages = tuple(count for count in (5, 10, 20) if count <= len(steps))
        if averages and max(averages) > len(steps):
            raise InputError(
                f"--averages={max(averages)}: {self._run.checkpoints_path} has only {len(steps)} checkpoints"
            )
        best_weights: Arrays = load_weights(self._current)
        best_members: list[checkpoints.Checkpoint] = []
        best = self._try(self._current.name, decode)
        for count in sorted(averages):
            if self._current.name == (name := f"averaged_last{count}"):
                continue
            paths = checkpoints.newest_paths(self._run.checkpoints_path, count)
            members = [checkpoints.load(path, weights_only=True) for path in paths]
            weights = averaging.average(members)
            assign_weights(self._model, weights)
            trial = self._try(name, decode)
            if _better(trial, best):
                best, best_weights, best_members = trial, weights, members
        assign_weights(self._model, dict(best_weights))
        for search in searches:
            if search != decode:
                trial = self._try(best.weights, search)
                best = trial if _better(trial, best) else best
        if best_members:
            averaging.save(self._run, best_members, best.weights)
        self._run.store_decoding(best.decode)
        return best

    def _try(self, weights: str, decode: DecodeConfig) -> Trial:
        """Translates and scores the sentences with the current weights of the model."""
        translator = Translator(self._tokenizer, self._model, decode, self._config.data)
        first = next((line for line in self._sources if line.strip()), "")
        translator.translate([first], scored=False)
        start = time.perf_counter()
        hypotheses = [translation.line for translation in translator.translate(self._sources, scored=False)]
        seconds = time.perf_counter() - start
        score = translator.task.monitored(hypotheses, list(self._references), self._language)
        self.trials.append(Trial(weights, decode, score, seconds))
        self._report(self.trials[-1])
        return self.trials[-1]


def _better(trial: Trial, best: Trial) -> bool:
    return round(trial.score, 2) > round(best.score, 2)
