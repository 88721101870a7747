"""An engine that runs searches on CTranslate2, which is faster than TensorFlow on a CPU.

The search corresponds to `beam_search` with `ends_within_beam`. With `patience`, the search of a sentence stops by the
same rule. Without it, the search stops when the requested number of hypotheses have finished, and one of them was the
most probable candidate of its step. The hypotheses are ranked by this project's scores. CTranslate2 never generates
padding, and excludes it from the softmax.

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
from t2t_keras.search.searcher import output_limits
from t2t_keras.symbols import EOS_ID, PAD_ID, SPECIAL

# Settings that CTranslate2 does not support, with their values when they are off.
_UNSUPPORTED = {"coverage_penalty": 0, "num_groups": 1, "bfloat16": False}
# A length exponent too small to change any ranking. With an exponent of 0, CTranslate2 stops by a rule other than its
# patience.
_NO_EXPONENT = 1e-6
_MIN_SCORE = -1e8  # CTranslate2 fills empty slots with hypotheses of score -1e10


def unsupported(model: Any, config: DecodeConfig, excluded: Sequence[Any], form: Form | None) -> str:
    """Returns the features that CTranslate2 does not support among the arguments of `Searcher`, as text; "" if none."""
    sizes = getattr(model, "config", None)
    if type(sizes) is not TransformerConfig:  # a derived class belongs to a different family
        return "an ensemble" if sizes is None else f"a model of the family {sizes.family}"
    try:
        check_expressible(sizes, "CTranslate2")
    except InputError as error:
        return str(error).removeprefix("CTranslate2 does not support ")
    features = [
        f"decode.{name}={getattr(config, name)}" for name, off in _UNSUPPORTED.items() if getattr(config, name) != off
    ]
    features += ["excluded words"] if excluded else []
    features += ["a task whose outputs are labels"] if form else []
    return ", ".join(features)


def package_and_device(compute_type: ComputeType) -> tuple[Any, str]:
    """Imports CTranslate2 and returns it with its device: "cuda" if it finds a GPU, else "cpu".

    Raises:
        InputError: the package is missing, or it does not support the compute type on that device.
    """
    package = optional_module("ctranslate2", MISSING)
    device = "cuda" if package.get_cuda_device_count() else "cpu"
    if compute_type not in (types := package.get_supported_compute_types(device)):
        valid = ", ".join(sorted(types))
        raise InputError(f"--compute_type={compute_type}: CTranslate2 supports {valid} on this {device}")
    return package, device


class CTranslate2Engine:
    """Makes searches that run on CTranslate2 with a copy of the model's current weights.

    The weights are written to a temporary folder each time, which takes a fraction of a second, so there are no files
    that could be out of date. There is one worker per stream of `machine.streams`. CTranslate2 uses a GPU if it finds
    one.

    Args:
        compute_type: number format of matrix products: "float32"; "int8", which is faster but rounds more; or
            "bfloat16", on a GPU.
        longest_source: maximum number of tokens of a source, end symbol included.
    """

    options = frozenset({"prefix"})

    def __init__(self, compute_type: ComputeType = "float32", longest_source: int = MAX_POSITIONS) -> None:
        self._compute_type, self._longest_source = compute_type, longest_source

    def searcher(
        self,
        model: Any,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        form: Form | None = None,
        continuations: Sequence[int] = (),
    ) -> "CTranslate2Searcher":
        """Makes the searches of a model; see `Searcher` for the arguments.

        `continuations` is unused, because this engine does not support constraints.

        Raises:
            InputError: the package is missing, or CTranslate2 does not support a setting; names it.
        """
        if reason := unsupported(model, config, excluded, form):
            raise InputError(f"the engine ctranslate2 does not support {reason}; use --engine=tensorflow")
        package, device = package_and_device(self._compute_type)
        sizes = model.config
        longest_output = int(output_limits([self._longest_source], config)[0])
        positions = max(MAX_POSITIONS, self._longest_source, longest_output)
        arrays = {name: variable.numpy() for name, variable in named_weights(model).items()}
        weights = with_positions(arrays, sizes, positions)
        with tempfile.TemporaryDirectory() as folder:
            names = _names(sizes.source_entries), _names(sizes.vocab_size)
            write_spec(weights, sizes, names, pathlib.Path(folder))
            # Each worker seeds its random generator with the value that is set when it first samples.
            package.set_random_seed(config.seed % 2**32)
            threads = {"inter_threads": num_streams(), "intra_threads": threads_per_stream()}
            translator = package.Translator(folder, device, compute_type=self._compute_type, **threads)
        return CTranslate2Searcher(translator, config, positions, *names)


def _names(size: int) -> list[str]:
    """Returns a name for each id of a vocabulary, because CTranslate2 reads and writes tokens as strings."""
    return [*SPECIAL, *map(str, range(len(SPECIAL), size))]


def _to_names(names: Sequence[str], rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[names[token] for token in row] for row in rows]


class _Sentence(NamedTuple):
    """A sentence to translate, with its restrictions.

    Attributes:
        source: token ids, without end symbol.
        prefix: token ids with which the output begins.
        limit: maximum number of tokens of the output, end symbol included.
    """

    source: list[int]
    prefix: list[int]
    limit: int


class _Hypothesis(NamedTuple):
    """One output of a search.

    Attributes:
        ids: token ids, with the end symbol unless the length limit was reached first.
        log_prob: total log-probability; NaN if unknown.
    """

    ids: list[int]
    log_prob: float


def _select_finished(hypotheses: list[_Hypothesis], limit: int) -> list[_Hypothesis]:
    """Returns the hypotheses that ended within a length limit."""
    return [one for one in hypotheses if len(one.ids) <= limit and one.ids[-1:] == [EOS_ID]]


def _cut(hypothesis: _Hypothesis, limit: int) -> _Hypothesis:
    """Truncates the output of a greedy search or of sampling, which find the same tokens under any limit."""
    return hypothesis if len(hypothesis.ids) <= limit else _Hypothesis(hypothesis.ids[:limit], math.nan)


class CTranslate2Searcher:
    """The search of one model with one configuration; see `Searcher` for the call.

    Args:
        translator: a `ctranslate2.Translator`.
        config: the decoding settings.
        longest: maximum number of tokens of a source or an output, end symbol included.
        source_names: the name of each id of the source vocabulary.
        target_names: the name of each id of the target vocabulary.
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
        # Computed once for all lengths: TensorFlow operations in each call would take 5 % of a small batch's time.
        lengths = np.arange(longest + 1)
        self._limits = output_limits(lengths, config).numpy()
        self._penalties = length_penalty(
            np.maximum(lengths, 1), config.length_penalty, config.length_normalization
        ).numpy()
        self._bars_tokens = config.min_length > 1 or config.no_repeat_ngram_size > 0
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
        num_best = 1 if only_best else self._config.beam_size
        scored = scored or (self._config.beam_size > 1 and not self._config.sampling)
        return self._result(self._search_within_limits(sentences, num_best, scored), num_best)

    def _search_within_limits(
        self, sentences: Sequence[_Sentence], num_best: int, scored: bool
    ) -> list[list[_Hypothesis]]:
        """Finds the hypotheses of each sentence under its own length limit, in any order.

        CTranslate2 has one length limit per batch. The first search uses the largest limit of all sentences: the
        hypotheses that end within a sentence's own limit are those that it would have found under that limit. Sentences
        without such hypotheses are searched again under their own limit.
        """
        longest = max((sentence.limit for sentence in sentences), default=0)
        hypotheses = self._search(sentences, longest, num_best, scored)
        if self._settings(num_best)["beam_size"] == 1:  # the next token does not depend on the limit
            cuts = [
                [_cut(one, sentence.limit) for one in row] for sentence, row in zip(sentences, hypotheses, strict=True)
            ]
            return self._correct_log_probs(sentences, cuts, scored)
        hypotheses = [
            _select_finished(row, sentence.limit) for sentence, row in zip(sentences, hypotheses, strict=True)
        ]
        retries: dict[int, list[int]] = {}
        for number, sentence in enumerate(sentences):
            if not hypotheses[number]:
                retries.setdefault(sentence.limit, []).append(number)
        for limit, numbers in retries.items():
            batch = self._search([sentences[number] for number in numbers], limit, num_best, scored, to_limit=True)
            for number, row in zip(numbers, batch, strict=True):
                hypotheses[number] = _select_finished(row, limit) or row
        return self._correct_log_probs(sentences, hypotheses, scored)

    def _search(
        self, sentences: Sequence[_Sentence], limit: int, num_best: int, scored: bool, to_limit: bool = False
    ) -> list[list[_Hypothesis]]:
        """Runs CTranslate2's search with one limit of the output's length for all sentences.

        With a `min_length` of 1, which most trained runs have, the first search allows empty outputs. Only sentences
        for which it finds one are searched again with empty outputs barred. Barring them changes CTranslate2's
        log-probabilities, which must then be computed again.

        Args:
            sentences: the sentences.
            limit: maximum number of tokens of an output, end symbol included.
            num_best: hypotheses per sentence.
            scored: whether log-probabilities are needed.
            to_limit: whether the search is expected to reach the limit. It then returns more hypotheses, so that
                finished ones are not displaced by unfinished ones.
        """
        least = self._config.min_length if self._bars_tokens else 0
        hypotheses = self._run_search(sentences, limit, least, num_best, scored, to_limit)
        if self._bars_tokens or not self._config.min_length:
            return hypotheses
        numbers = [number for number, row in enumerate(hypotheses) if any(one.ids == [EOS_ID] for one in row)]
        retries = [sentences[number] for number in numbers]
        for number, row in zip(numbers, self._run_search(retries, limit, 1, num_best, False, to_limit), strict=True):
            hypotheses[number] = row
        return hypotheses

    def _run_search(
        self, sentences: Sequence[_Sentence], limit: int, least: int, num_best: int, scored: bool, to_limit: bool
    ) -> list[list[_Hypothesis]]:
        """Runs CTranslate2's search like `_search`, with outputs of at least `least` tokens."""
        if not sentences:
            return []
        settings = self._settings(num_best)
        if to_limit:
            settings["num_hypotheses"] += settings["beam_size"]
            settings["patience"] = settings.get("patience", 1) + 1
        results = self._translator.translate_batch(
            _to_names(self._source_names, [sentence.source for sentence in sentences]),
            _to_names(self._target_names, [sentence.prefix for sentence in sentences]),
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min(least, limit),
            no_repeat_ngram_size=self._config.no_repeat_ngram_size,
            return_end_token=True,
            return_scores=scored,
            **settings,
        )
        output = []
        for sentence, result in zip(sentences, results, strict=True):
            rows = [[self._ids[name] for name in names] for names in result.hypotheses]
            scores = result.scores or [math.nan] * len(rows)
            pairs = [pair for pair in zip(rows, scores, strict=True) if not pair[1] < _MIN_SCORE]
            hypotheses = [_Hypothesis(ids, score * len(ids) ** settings["length_penalty"]) for ids, score in pairs]
            output.append(self._shuffle(sentence, hypotheses) if self._config.sampling else hypotheses)
        return output

    def _settings(self, num_best: int) -> dict[str, Any]:
        """Returns CTranslate2's options for beam search or sampling with `num_best` results per sentence."""
        config = self._config
        if config.sampling:
            return {
                "beam_size": 1,
                "num_hypotheses": 1 if config.top_k == 1 else num_best,  # CTranslate2 rejects several identical samples
                "length_penalty": 0.0,
                "sampling_topk": min(config.top_k, len(self._target_names)),
                "sampling_topp": config.top_p,
                "sampling_temperature": config.temperature,
            }
        exponent = {"gnmt": config.length_penalty, "average": 1.0, "none": 0.0}[config.length_normalization]
        # Where CTranslate2's ranking may differ from this project's, the best results are chosen from the whole beam.
        num_results = (
            num_best if exponent == 0 and not self._bars_tokens and not config.min_length else config.beam_size
        )
        settings = {"beam_size": config.beam_size, "num_hypotheses": num_results, "length_penalty": 0.0}
        if config.patience and config.beam_size > 1:
            num_finished = math.ceil(config.patience * config.beam_size)
            settings["num_hypotheses"] = min(num_results, num_finished)
            # CTranslate2 multiplies this by the beam size and rounds it; the margin covers rounding errors.
            settings["patience"] = num_finished / config.beam_size + 1e-4
            settings["length_penalty"] = exponent or _NO_EXPONENT
        return settings

    def _shuffle(self, sentence: _Sentence, samples: list[_Hypothesis]) -> list[_Hypothesis]:
        """Shuffles samples, which CTranslate2 sorts by score, into an order that does not depend on their scores."""
        seeds = [self._config.seed % 2**32, *sentence.source]
        return [samples[place] for place in np.random.default_rng(seeds).permutation(len(samples))]

    def _correct_log_probs(
        self, sentences: Sequence[_Sentence], hypotheses: list[list[_Hypothesis]], scored: bool
    ) -> list[list[_Hypothesis]]:
        """Replaces log-probabilities by those of forced decoding where CTranslate2's search gives different ones.

        The log-probabilities of its search leave out barred tokens and the prefix, and those of a truncated output are
        unknown.
        """
        is_different = self._bars_tokens or any(sentence.prefix for sentence in sentences)
        is_different = is_different or any(math.isnan(one.log_prob) for row in hypotheses for one in row)
        if not scored or not is_different:
            return hypotheses
        pairs = [(sentence, one.ids) for sentence, row in zip(sentences, hypotheses, strict=True) for one in row]
        results = self._translator.score_batch(
            _to_names(self._source_names, [sentence.source for sentence, _ in pairs]),
            _to_names(self._target_names, [[token for token in ids if token != EOS_ID] for _, ids in pairs]),
            max_input_length=0,
            max_batch_size=len(sentences),
        )
        # `score_batch` adds an end symbol, which an output that reached its limit does not have.
        totals = iter(sum(result.log_probs[: len(ids)]) for result, (_, ids) in zip(results, pairs, strict=True))
        return [[_Hypothesis(one.ids, next(totals)) for one in row] for row in hypotheses]

    def _result(self, hypotheses: list[list[_Hypothesis]], num_best: int) -> SearchResult:
        """Returns the best hypotheses by this project's scores or, when sampling, the samples in their order."""
        count = max((len(row) for row in hypotheses), default=0) or 1
        rows = [[*row, *[_Hypothesis([], -math.inf)] * (count - len(row))] for row in hypotheses]
        flat = padded([one.ids for row in rows for one in row])  # --> [batch * count, length]
        token_ids = flat.reshape(len(rows), count, flat.shape[1])
        lengths = np.array([[len(one.ids) for one in row] for row in rows], np.int32).reshape(len(rows), count)
        log_probs = np.array([[one.log_prob for one in row] for row in rows], np.float32).reshape(len(rows), count)
        scores = log_probs / self._penalties[lengths]
        order = np.argsort(-scores, axis=1, kind="stable")
        if self._config.sampling:
            order = np.broadcast_to(np.arange(count), order.shape)
        order = order[:, :num_best]
        token_ids = np.take_along_axis(token_ids, order[:, :, np.newaxis], axis=1)
        sorted_values = (np.take_along_axis(values, order, axis=1) for values in (scores, log_probs, lengths))
        return SearchResult(*map(tf.constant, (token_ids, *sorted_values)))
