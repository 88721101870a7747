"""Beam search over a session, in NumPy: `t2t_keras.search.beam_search` without options."""

import dataclasses
from typing import NamedTuple

import numpy as np

from t2t_keras.lite.numpy_candidates import Candidates, best_candidates
from t2t_keras.lite.session import Session, newest_bias
from t2t_keras.search.leaving import is_time_to_leave
from t2t_keras.symbols import EOS_ID, PAD_ID

_DEAD = np.float32(-np.inf)  # log-probability and score of an empty slot


class Limits(NamedTuple):
    """The limits of a search; see `t2t_keras.search.goal.Goal`.

    Attributes:
        max_lengths: int32 [batch], most tokens of an output; 0 skips a sentence.
        min_lengths: int32 [batch], tokens required before the end symbol.
        penalties: float32 [longest + 1], the length penalty for each length.
        ends_within_beam: whether only the beam best candidates may end.
        patience: if positive, a sentence is also done once patience * beam hypotheses have finished.
        num_best: number of hypotheses to return.
    """

    max_lengths: np.ndarray
    min_lengths: np.ndarray
    penalties: np.ndarray
    ends_within_beam: bool
    patience: float
    num_best: int


class _Hypotheses(NamedTuple):
    """Hypotheses of each sentence, [sentences, count] each, best first; see `t2t_keras.search.state.Finished`."""

    scores: np.ndarray
    log_probs: np.ndarray
    lengths: np.ndarray
    parents: np.ndarray

    @staticmethod
    def none(sentences: int, count: int) -> "_Hypotheses":
        shape = (sentences, count)
        return _Hypotheses(np.full(shape, _DEAD), np.full(shape, _DEAD), *np.zeros((2, *shape), np.int32))


@dataclasses.dataclass
class _Open:
    """The open sentences: index in the batch, limits, whether done, and number finished so far, [open]; newest token
    and total log-probability (-inf in an empty slot) of the living hypotheses, [open, beam]; the finished hypotheses;
    and the bias that masks the cache entries of other hypotheses, float32 [open, beam, steps * beam].
    """

    sentences: np.ndarray
    max_lengths: np.ndarray
    min_lengths: np.ndarray
    done: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray
    bias: np.ndarray
    finished: _Hypotheses
    num_finished: np.ndarray

    @staticmethod
    def start(limits: Limits, beam: int) -> "_Open":
        batch = len(limits.max_lengths)
        first_alive = np.where(np.arange(beam) == 0, np.float32(0), _DEAD)  # identical hypotheses would fill the beam
        return _Open(
            sentences=np.arange(batch, dtype=np.int32),
            max_lengths=limits.max_lengths,
            min_lengths=limits.min_lengths,
            done=np.zeros(batch, bool),
            tokens=np.full((batch, beam), PAD_ID, np.int32),
            log_probs=np.tile(first_alive, (batch, 1)),
            bias=np.zeros((batch, beam, 0), np.float32),
            finished=_Hypotheses.none(batch, beam),
            num_finished=np.zeros(batch, int),
        )

    def leave_out_done(self) -> None:
        """Removes the sentences that are done."""
        kept = ~self.done
        for field in dataclasses.fields(self):
            if field.name != "finished":
                setattr(self, field.name, getattr(self, field.name)[kept])
        self.finished = _Hypotheses(*(values[kept] for values in self.finished))


class BeamSearch:
    """One search, over a session that has begun, with a beam of more than one and with `log_totals`.

    Takes all embedded tokens, float32 [vocab, d_model], and what is added at each position, float32 [longest, d_model].
    """

    def __init__(self, session: Session, table: np.ndarray, positions: np.ndarray, limits: Limits) -> None:
        self._session, self._table, self._positions, self._limits = session, table, positions, limits
        batch, beam = len(limits.max_lengths), session.beam_size
        self._length = 0
        self._open = _Open.start(limits, beam)
        self._history = np.zeros((2, len(positions), batch, beam), np.int32)  # tokens, and their parents' slots
        self._results = _Hypotheses.none(batch, limits.num_best)
        self._has_ended = np.zeros(batch, bool)
        self._newest = newest_bias(beam)

    def run(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Searches, and returns the fields of `t2t_keras.search.beam_search.SearchResult`."""
        self._settle(self._limits.max_lengths <= 0)
        while len(self._open.sentences):
            candidates = self._candidates()
            ends = (candidates.token_ids == EOS_ID) & (candidates.log_probs > _DEAD)
            self._length += 1
            self._finish(candidates, self._allowed(ends))
            self._live_on(candidates, ends)
            self._settle(self._done())
        scores, log_probs, lengths, _ = self._results
        return self._texts(), scores, log_probs, lengths

    def _candidates(self) -> Candidates:
        """The candidates of one step."""
        now = self._open
        inputs = self._table[now.tokens.reshape(-1)] + self._positions[self._length]  # --> [open * beam, d_model]
        self._session.advance(inputs, now.sentences, now.bias)
        may_end = self._length >= now.min_lengths
        session = self._session
        return best_candidates(session.logits_in_place(), session.log_totals(), now.log_probs, may_end)

    def _allowed(self, ends: np.ndarray) -> np.ndarray:
        """Those of the candidates that end which may do so."""
        if not self._limits.ends_within_beam:
            return ends
        return ends & (np.arange(ends.shape[1]) < self._session.beam_size)

    def _finish(self, candidates: Candidates, ends: np.ndarray) -> None:
        """Lets the candidates that end compete with the finished hypotheses."""
        if not ends.any():
            return
        now = self._open
        scores = np.where(ends, candidates.log_probs / self._limits.penalties[self._length], _DEAD)
        lengths = np.where(ends, np.int32(self._length), np.int32(0))
        new = _Hypotheses(scores, candidates.log_probs, lengths, candidates.parents)
        joined = [np.concatenate(pair, axis=1) for pair in zip(now.finished, new, strict=True)]
        rows = np.arange(len(ends))[:, np.newaxis]
        best = np.argsort(-joined[0], axis=1, kind="stable")[:, : self._session.beam_size]
        now.finished = _Hypotheses(*(values[rows, best] for values in joined))
        now.num_finished += np.count_nonzero(ends, axis=1)

    def _live_on(self, candidates: Candidates, ends: np.ndarray) -> None:
        """Replaces the living hypotheses by the best candidates that do not end."""
        now, beam = self._open, self._session.beam_size
        if ends.any():
            best = np.argsort(ends, axis=1, kind="stable")
            candidates = Candidates(*(np.take_along_axis(values, best, axis=1) for values in candidates))
        now.log_probs, now.tokens, parents = (values[:, :beam] for values in candidates)
        self._history[0, self._length - 1, now.sentences] = now.tokens
        self._history[1, self._length - 1, now.sentences] = parents
        moved = now.bias[np.arange(len(parents))[:, np.newaxis], parents]
        now.bias = np.concatenate([moved, self._newest[parents]], axis=2)  # --> [open, beam, steps * beam]

    def _done(self) -> np.ndarray:
        """Which of the open sentences have a final result, bool [open]."""
        now, limits = self._open, self._limits
        bound = now.log_probs[:, 0] / limits.penalties[now.max_lengths]  # see `scoring.best_attainable_score`
        done = (self._length >= now.max_lengths) | (now.finished.scores[:, limits.num_best - 1] >= bound)
        if limits.patience:
            done |= now.num_finished >= np.float32(limits.patience * self._session.beam_size)
        return done

    def _settle(self, done: np.ndarray) -> None:
        """Writes down the results of sentences that are now done, and removes these if it is time."""
        now, limits = self._open, self._limits
        rows = np.flatnonzero(done & ~now.done) if done.any() else ()
        if not len(rows):
            return
        sentences, log_probs = now.sentences[rows], now.log_probs[rows]
        finished = _Hypotheses(*(values[rows] for values in now.finished))
        lengths = np.where(log_probs > _DEAD, np.maximum(now.max_lengths[rows], 0)[:, np.newaxis], 0)
        slots = np.broadcast_to(np.arange(log_probs.shape[1]), log_probs.shape)
        living = _Hypotheses(log_probs / limits.penalties[lengths], log_probs, lengths, slots)
        has_ended = finished.scores[:, 0] > _DEAD
        for result, ended, other in zip(self._results, finished, living, strict=True):
            result[sentences] = np.where(has_ended[:, np.newaxis], ended, other)[:, : limits.num_best]
        self._has_ended[sentences] = has_ended
        now.done[rows] = True
        if is_time_to_leave(np.count_nonzero(now.done), len(now.done)):
            now.leave_out_done()

    def _texts(self) -> np.ndarray:
        """The texts of the results, int32 [batch, num_best, steps made]; see `t2t_keras.search.state.trace_back`."""
        lengths, slots = self._results.lengths, self._results.parents
        # Living hypotheses have no end symbol: it is appended to the parent's tokens.
        ended = self._has_ended[:, np.newaxis] & (lengths > 0)
        text_lengths = lengths - ended
        texts = np.full((*lengths.shape, self._length), PAD_ID, np.int32)
        rows = np.arange(len(lengths))[:, np.newaxis]
        for step in reversed(range(self._length)):
            inside = step < text_lengths
            tokens, parents = self._history[:, step, rows, slots]
            texts[:, :, step] = np.where(inside, tokens, PAD_ID)
            slots = np.where(inside, parents, slots)
        sentences, places = np.nonzero(ended)
        texts[sentences, places, text_lengths[sentences, places]] = EOS_ID
        return texts
