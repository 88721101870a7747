"""Runs compiled searches on scripted models, and reads the hypotheses from their results."""

import functools

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import SearchResult, beam_search
from t2t_keras.search.goal import Goal
from t2t_keras.search.restrictions.rules import ExcludedPhrases, NoRepeatNgram
from tests.search.reference_search import EOS, Options
from tests.search.scripted import NUM_CODES, ScriptedModel

# Options that are constant within a traced search; all others can differ per sentence.
_TRACED = (
    *("alpha", "normalization", "patience", "no_repeat", "excluded", "num_groups", "strength", "coverage_penalty"),
    "continuations",
)


def padded(rows: list, shape: tuple[int, ...]) -> np.ndarray:
    """Returns token ids as one array, [rows, *shape], padded with zeros."""
    array = np.zeros((len(rows), *shape), np.int32)
    for index, row in enumerate(rows):
        if len(shape) > 1:
            array[index, : len(row)] = padded(row, shape[1:])
        else:
            array[index, : len(row)] = row
    return array


def rules_of(no_repeat: int, excluded: tuple) -> tuple:
    rules = (NoRepeatNgram(no_repeat),) if no_repeat else ()
    return (*rules, ExcludedPhrases(excluded)) if excluded else rules


@functools.cache
def compiled(beam: int, vocab: int, traced: tuple, with_prefixes: bool, with_constraints: bool):
    values = dict(zip(_TRACED, traced, strict=True))
    ids = [tf.TensorSpec([None] * rank, tf.int32) for rank in (1, 1, 2, 4)]

    @tf.function(input_signature=[tf.TensorSpec([None, NUM_CODES, vocab]), *ids], autograph=False)
    def run(tables, limits, min_lengths, prefixes, constraints):
        settings = DecodeConfig(
            beam_size=beam,
            length_penalty=values["alpha"],
            patience=values["patience"],
            length_normalization=values["normalization"],
            coverage_penalty=values["coverage_penalty"],
            num_groups=values["num_groups"],
            diversity_strength=values["strength"],
        )
        goal = Goal(
            settings,
            limits,
            min_lengths,
            rules=rules_of(values["no_repeat"], values["excluded"]),
            prefixes=prefixes if with_prefixes else None,
            constraints=constraints if with_constraints else None,
            continuations=tuple(values["continuations"]),
        )
        cache = ScriptedModel.cache_of(tables, beam, coverage=values["coverage_penalty"] > 0)
        return beam_search(ScriptedModel.step, cache, goal)

    return run


def search(model: ScriptedModel, limits: list[int], beam: int, sentences: list[Options]) -> SearchResult:
    """Runs a search with the options of each sentence; options that are constant when traced must be equal."""
    (traced,) = {tuple(getattr(options, name) for name in _TRACED) for options in sentences}
    with_prefixes = any(options.prefix for options in sentences)
    with_constraints = any(options.constraints for options in sentences)
    run = compiled(beam, model.tables.shape[-1], traced, with_prefixes, with_constraints)
    prefixes = padded([options.prefix for options in sentences], (max(len(o.prefix) for o in sentences),))
    constraints = padded([options.constraints for options in sentences], _sizes(sentences))
    min_lengths = [options.min_length for options in sentences]
    result = run(model.tables, limits, min_lengths, prefixes, constraints)
    return SearchResult(*(part.numpy() for part in result))


def _sizes(sentences: list[Options]) -> tuple[int, int, int]:
    """Returns the largest numbers of constraints, of phrases in one, and of tokens in a phrase."""
    groups = [phrases for options in sentences for phrases in options.constraints]
    longest = max((len(phrase) for phrases in groups for phrase in phrases), default=0)
    return max(len(o.constraints) for o in sentences), max(map(len, groups), default=0), longest


def hypotheses(result: SearchResult, sentence: int) -> list[tuple]:
    """Returns the used slots as (tokens, score, log_prob); asserts that the unused slots and the padding are empty."""
    found_hypotheses = []
    for slot, length in enumerate(result.lengths[sentence]):
        tokens = result.token_ids[sentence, slot]
        assert not tokens[length:].any()
        if length == 0:
            assert np.isneginf(result.scores[sentence, slot])
        else:
            assert tokens[:length].all(), "a hypothesis contains padding"
            assert EOS not in tokens[: length - 1]
            found_hypotheses.append((tuple(tokens[:length].tolist()), *_numbers(result, sentence, slot)))
    return found_hypotheses


def _numbers(result: SearchResult, sentence: int, slot: int) -> tuple[float, float]:
    return float(result.scores[sentence, slot]), float(result.log_probs[sentence, slot])


def assert_same(found_hypotheses: list[tuple], expected: list[tuple]) -> None:
    assert [tokens for tokens, *_ in found_hypotheses] == [tokens for tokens, *_ in expected]
    np.testing.assert_allclose([f[1:] for f in found_hypotheses], [e[1:] for e in expected], rtol=1e-5, atol=1e-5)
