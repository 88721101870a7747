"""The engine on CTranslate2, which searches with a Transformer's weights in less time on a CPU.

Its search is that of `beam_search` with `ends_within_beam`. With `patience`, a sentence ends as it does here. Without,
it ends when as many hypotheses as are asked for have finished, and one of them was the likeliest candidate of its step.
What was found is ordered by our scores. Its probabilities leave out padding, which it never writes.

Reference: https://opennmt.net/CTranslate2
"""

import math
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig, TransformerConfig
from t2t_keras.config.decode_config import ComputeType
from t2t_keras.errors import InputError, optional_module
from t2t_keras.formats.ctranslate2 import MAX_POSITIONS, MISSING, with_positions, write_spec
from t2t_keras.formats.portable_model import check_expressible
from t2t_keras.machine.streams import num_streams, threads_per_stream
from t2t_keras.models.weights import named_weights
from t2t_keras.search.batches import padded
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.scoring import length_penalty
from t2t_keras.search.searches import output_limits
from t2t_keras.symbols import EOS_ID, PAD_ID, SPECIAL

# Settings that it has nothing for, and their values when they are off.
_OFF = {"coverage_penalty": 0, "num_groups": 1, "bfloat16": False}
# An exponent of the length that changes no order: without any, it ends sentences by another rule than its patience.
_NO_EXPONENT = 1e-6
_LEAST_SCORE = -1e8  # it fills slots with hypotheses of -1e10


def refusal(model: Any, config: DecodeConfig, excluded: Sequence[Any], form: Form | None) -> str:
    """What CTranslate2 cannot do of what `Searches` is given; empty if nothing."""
    sizes = getattr(model, "config", None)
    if type(sizes) is not TransformerConfig:  # one that is derived from it is of another family
        return "an ensemble" if sizes is None else f"a model of the family {sizes.family}"
    try:
        check_expressible(sizes, "CTranslate2")
    except InputError as error:
        return str(error).removeprefix("CTranslate2 cannot have ")
    odd = [f"decode.{name}={getattr(config, name)}" for name, off in _OFF.items() if getattr(config, name) != off]
    odd += ["excluded words"] if excluded else []
    odd += ["a task whose outputs are labels"] if form else []
    return ", ".join(odd)


def package_and_device(compute_type: ComputeType) -> tuple[Any, str]:
    """The package, and the device that it computes on: "cuda" if it finds one, else "cpu".

    Raises:
        InputError: the package is missing, or it cannot multiply like this on that device.
    """
    package = optional_module("ctranslate2", MISSING)
    device = "cuda" if package.get_cuda_device_count() else "cpu"
    if compute_type not in (types := package.get_supported_compute_types(device)):
        known = ", ".join(sorted(types))
        raise InputError(f"--compute_type={compute_type}: CTranslate2 computes {known} on this {device}")
    return package, device


class CTranslate2Engine:
    """Makes searches that run on CTranslate2, with the weights that the model has at that moment.

    The weights go through a temporary folder, which takes a fraction of a second, and nothing can be out of date.
    There is a worker for each stream of `machine.streams`; a GPU is used if CTranslate2 finds one.

    Args:
        compute_type: how it multiplies: "float32"; "int8", faster, with other rounding; or "bfloat16", on a GPU.
        longest_source: most tokens of a source, end symbol included.
    """

    options = frozenset({"prefix"})

    def __init__(self, compute_type: ComputeType = "float32", longest_source: int = MAX_POSITIONS) -> None:
        self._compute_type, self._longest_source = compute_type, longest_source

    def searches(
        self,
        model: Any,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        form: Form | None = None,
        continuations: Sequence[int] = (),
    ) -> "CTranslate2Searches":
        """The searches with these settings; arguments are those of `Searches`, the last for constraints alone.

        Raises:
            InputError: the package is missing, or there is something that it cannot do; names it.
        """
        if what := refusal(model, config, excluded, form):
            raise InputError(f"the engine ctranslate2 does not search with {what}; --engine=tensorflow does")
        package, device = package_and_device(self._compute_type)
        sizes = model.config
        longest_output = int(output_limits([self._longest_source], config)[0])
        positions = max(MAX_POSITIONS, self._longest_source, longest_output)
        arrays = {name: variable.numpy() for name, variable in named_weights(model).items()}
        weights = with_positions(arrays, sizes, positions)
        with tempfile.TemporaryDirectory() as folder:
            names = _names(sizes.source_entries), _names(sizes.vocab_size)
            write_spec(weights, sizes, names, pathlib.Path(folder))
            # A worker's generator begins with the seed of the moment when the worker first draws.
            package.set_random_seed(config.seed % 2**32)
            threads = {"inter_threads": num_streams(), "intra_threads": threads_per_stream()}
            translator = package.Translator(folder, device, compute_type=self._compute_type, **threads)
        return CTranslate2Searches(translator, config, positions, *names)


def _names(size: int) -> list[str]:
    """A name for each id of a vocabulary: CTranslate2 takes and gives names."""
    return [*SPECIAL, *map(str, range(len(SPECIAL), size))]


def _named(names: Sequence[str], rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[names[token] for token in row] for row in rows]


class _Sentence(NamedTuple):
    """What is searched for.

    Attributes:
        source: token ids, without end symbol.
        prefix: token ids of how the output begins.
        limit: most tokens of the output, end symbol included.
    """

    source: list[int]
    prefix: list[int]
    limit: int


class _Hypothesis(NamedTuple):
    """What was found: token ids, with the end symbol unless the limit came first, and their log-probability or NaN."""

    ids: list[int]
    log_prob: float


def _ended(hypotheses: list[_Hypothesis], limit: int) -> list[_Hypothesis]:
    """Those that ended within a limit."""
    return [one for one in hypotheses if len(one.ids) <= limit and one.ids[-1:] == [EOS_ID]]


def _cut(hypothesis: _Hypothesis, limit: int) -> _Hypothesis:
    """What a search without choices between lengths finds under a limit."""
    return hypothesis if len(hypothesis.ids) <= limit else _Hypothesis(hypothesis.ids[:limit], math.nan)


class CTranslate2Searches:
    """Searches of one model with one configuration; see `Searches` for the call.

    Args:
        translator: a `ctranslate2.Translator`.
        config: the decoding settings.
        longest: most tokens of a source or an output, end symbol included.
        source_names: of the entries of the vocabulary of sources.
        target_names: of those of the vocabulary of targets.
    """

    def __init__(
        self,
        translator: Any,
        config: DecodeConfig,
        longest: int,
        source_names: Sequence[str],
        target_names: Sequence[str],
    ) -> None:
        self._translator, self._config = translator, config
        # By length: operations of TensorFlow in each call would take a twentieth of what a small batch takes.
        lengths = np.arange(longest + 1)
        self._limits = output_limits(lengths, config).numpy()
        self._penalties = length_penalty(
            np.maximum(lengths, 1), config.length_penalty, config.length_normalization
        ).numpy()
        self._bars = config.min_length > 1 or config.no_repeat_ngram_size > 0
        self._source_names, self._target_names = source_names, target_names
        self._ids = {name: number for number, name in enumerate(target_names)}

    def __call__(self, source_ids: Any, only_best: bool = False, scored: bool = True, **options: Any) -> SearchResult:
        rows = np.asarray(source_ids)
        lengths = np.count_nonzero(rows != PAD_ID, axis=1)
        limits = self._limits[lengths].tolist()
        prefixes = np.asarray(options["prefix"]).tolist() if "prefix" in options else [[]] * len(rows)
        sentences = [
            _Sentence(row[: length - 1], [token for token in begin if token != PAD_ID], limit)
            for row, length, begin, limit in zip(rows.tolist(), lengths.tolist(), prefixes, limits, strict=True)
        ]
        wanted = 1 if only_best else self._config.beam_size
        scored = scored or (self._config.beam_size > 1 and not self._config.sampling)
        return self._result(self._within_limits(sentences, wanted, scored), wanted)

    def _within_limits(self, sentences: Sequence[_Sentence], wanted: int, scored: bool) -> list[list[_Hypothesis]]:
        """The hypotheses of each sentence, in any order.

        CTranslate2 has one limit for a batch. Under the longest limit of all, what ended within a sentence's own limit
        is what would have ended under that. Sentences of which nothing did are searched again, under their own limit.
        """
        longest = max((sentence.limit for sentence in sentences), default=0)
        found = self._searched(sentences, longest, wanted, scored)
        if self._settings(wanted)["beam_size"] == 1:  # what is drawn or chosen next depends on no limit
            cut = [[_cut(one, sentence.limit) for one in row] for sentence, row in zip(sentences, found, strict=True)]
            return self._with_own_log_probs(sentences, cut, scored)
        found = [_ended(row, sentence.limit) for sentence, row in zip(sentences, found, strict=True)]
        again: dict[int, list[int]] = {}
        for number, sentence in enumerate(sentences):
            if not found[number]:
                again.setdefault(sentence.limit, []).append(number)
        for limit, numbers in again.items():
            batch = self._searched([sentences[number] for number in numbers], limit, wanted, scored, to_limit=True)
            for number, row in zip(numbers, batch, strict=True):
                found[number] = _ended(row, limit) or row
        return self._with_own_log_probs(sentences, found, scored)

    def _searched(
        self, sentences: Sequence[_Sentence], limit: int, wanted: int, scored: bool, to_limit: bool = False
    ) -> list[list[_Hypothesis]]:
        """What CTranslate2 finds for each sentence, with an output's limit of so many tokens.

        With `to_limit` a search is known to go on to the limit, and what ends before is not lost to what does not end.
        With a `min_length` of 1, the usual one, sentences of which an empty output is found are searched again with
        these barred, and not all: what is barred makes other log-probabilities, which would have to be computed anew.
        """
        least = self._config.min_length if self._bars else 0
        found = self._searched_with(sentences, limit, least, wanted, scored, to_limit)
        if self._bars or not self._config.min_length:
            return found
        numbers = [number for number, row in enumerate(found) if any(one.ids == [EOS_ID] for one in row)]
        again = [sentences[number] for number in numbers]
        for number, row in zip(numbers, self._searched_with(again, limit, 1, wanted, False, to_limit), strict=True):
            found[number] = row
        return found

    def _searched_with(
        self, sentences: Sequence[_Sentence], limit: int, least: int, wanted: int, scored: bool, to_limit: bool
    ) -> list[list[_Hypothesis]]:
        """The same, with outputs of at least so many tokens."""
        if not sentences:
            return []
        settings = self._settings(wanted)
        if to_limit:
            settings["num_hypotheses"] += settings["beam_size"]
            settings["patience"] = settings.get("patience", 1) + 1
        results = self._translator.translate_batch(
            _named(self._source_names, [sentence.source for sentence in sentences]),
            _named(self._target_names, [sentence.prefix for sentence in sentences]),
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min(least, limit),
            no_repeat_ngram_size=self._config.no_repeat_ngram_size,
            return_end_token=True,
            return_scores=scored,
            **settings,
        )
        found = []
        for sentence, result in zip(sentences, results, strict=True):
            rows = [[self._ids[name] for name in names] for names in result.hypotheses]
            scores = result.scores or [math.nan] * len(rows)
            pairs = [pair for pair in zip(rows, scores, strict=True) if not pair[1] < _LEAST_SCORE]
            hypotheses = [_Hypothesis(ids, score * len(ids) ** settings["length_penalty"]) for ids, score in pairs]
            found.append(self._as_drawn(sentence, hypotheses) if self._config.sampling else hypotheses)
        return found

    def _settings(self, wanted: int) -> dict[str, Any]:
        """What CTranslate2 is told of the search itself."""
        config = self._config
        if config.sampling:
            return {
                "beam_size": 1,
                "num_hypotheses": 1 if config.top_k == 1 else wanted,  # all would be the same, which it refuses
                "length_penalty": 0.0,
                "sampling_topk": min(config.top_k, len(self._target_names)),
                "sampling_topp": config.top_p,
                "sampling_temperature": config.temperature,
            }
        exponent = {"gnmt": config.length_penalty, "average": 1.0, "none": 0.0}[config.length_normalization]
        # Where its order is not ours, more are needed to choose from.
        found = wanted if exponent == 0 and not self._bars and not config.min_length else config.beam_size
        settings = {"beam_size": config.beam_size, "num_hypotheses": found, "length_penalty": 0.0}
        if config.patience and config.beam_size > 1:
            ended = math.ceil(config.patience * config.beam_size)
            settings["num_hypotheses"] = min(found, ended)
            settings["patience"] = ended / config.beam_size + 1e-4  # which it compares with, and rounds
            settings["length_penalty"] = exponent or _NO_EXPONENT
        return settings

    def _as_drawn(self, sentence: _Sentence, samples: list[_Hypothesis]) -> list[_Hypothesis]:
        """Samples in an order that does not depend on them: CTranslate2 sorts them by their scores."""
        seeds = [self._config.seed % 2**32, *sentence.source]
        return [samples[place] for place in np.random.default_rng(seeds).permutation(len(samples))]

    def _with_own_log_probs(
        self, sentences: Sequence[_Sentence], found: list[list[_Hypothesis]], scored: bool
    ) -> list[list[_Hypothesis]]:
        """The hypotheses with the log-probabilities of forced decoding where CTranslate2's are others.

        Those of a search leave out what is barred, and the prefix, and are of whole outputs.
        """
        others = self._bars or any(sentence.prefix for sentence in sentences)
        others = others or any(math.isnan(one.log_prob) for row in found for one in row)
        if not scored or not others:
            return found
        pairs = [(sentence, one.ids) for sentence, row in zip(sentences, found, strict=True) for one in row]
        results = self._translator.score_batch(
            _named(self._source_names, [sentence.source for sentence, _ in pairs]),
            _named(self._target_names, [[token for token in ids if token != EOS_ID] for _, ids in pairs]),
            max_input_length=0,
            max_batch_size=len(sentences),
        )
        # Of an output that was cut off, the end symbol's is left out.
        totals = iter(sum(result.log_probs[: len(ids)]) for result, (_, ids) in zip(results, pairs, strict=True))
        return [[_Hypothesis(one.ids, next(totals)) for one in row] for row in found]

    def _result(self, found: list[list[_Hypothesis]], wanted: int) -> SearchResult:
        """The best of them by our scores, or samples as they were drawn."""
        count = max((len(row) for row in found), default=0) or 1
        rows = [[*row, *[_Hypothesis([], -math.inf)] * (count - len(row))] for row in found]
        flat = padded([one.ids for row in rows for one in row])  # --> [batch * count, length]
        token_ids = flat.reshape(len(rows), count, flat.shape[1])
        lengths = np.array([[len(one.ids) for one in row] for row in rows], np.int32).reshape(len(rows), count)
        log_probs = np.array([[one.log_prob for one in row] for row in rows], np.float32).reshape(len(rows), count)
        scores = log_probs / self._penalties[lengths]
        order = np.argsort(-scores, axis=1, kind="stable")
        if self._config.sampling:
            order = np.broadcast_to(np.arange(count), order.shape)
        order = order[:, :wanted]
        token_ids = np.take_along_axis(token_ids, order[:, :, np.newaxis], axis=1)
        others = (np.take_along_axis(values, order, axis=1) for values in (scores, log_probs, lengths))
        return SearchResult(*map(tf.constant, (token_ids, *others)))
