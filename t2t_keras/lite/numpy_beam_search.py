"""Beam search over a session, in NumPy: the part of `t2t_keras.search.beam_search` that needs no options."""

import dataclasses
from typing import NamedTuple

import numpy as np

from t2t_keras.lite.numpy_candidates import Candidates, best_candidates
from t2t_keras.lite.session import Session, newest_bias
from t2t_keras.search.leaving import is_time_to_leave
from t2t_keras.symbols import EOS_ID, PAD_ID

_DEAD = np.float32(-np.inf)  # the log-probability and the score of a slot that holds no hypothesis


class Limits(NamedTuple):
    """What a search is to find; see `t2t_keras.search.beam_search.beam_search`.

    Attributes:
        max_lengths: int32 [batch], most tokens of an output; 0 leaves a sentence out.
        min_lengths: int32 [batch], tokens of an output before its end symbol.
        penalties: float32 [longest + 1], what the log-probability of an output of each length is divided by.
        patience: when positive, a sentence is also done once so many times the beam have finished.
        num_best: hypotheses that are returned.
    """

    max_lengths: np.ndarray
    min_lengths: np.ndarray
    penalties: np.ndarray
    patience: float
    num_best: int


class _Hypotheses(NamedTuple):
    """Hypotheses of each sentence, [sentences, count] each, best first; as `t2t_keras.search.state.Finished`."""

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
    """The sentences that the session works on.

    Attributes:
        sentences: int32 [open], which of the batch.
        max_lengths: int32 [open], of the limits.
        min_lengths: int32 [open], of the limits.
        done: bool [open], whose results are written down.
        tokens: int32 [open, beam], the newest of each living hypothesis.
        log_probs: float32 [open, beam], the total of each; -inf in a slot without one.
        bias: float32 [open, beam, steps * beam], what hides all of the cache but each hypothesis' own entries.
        finished: the best finished hypotheses, [open, beam].
        num_finished: int [open], those that were dropped again included.
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
        first_alive = np.where(np.arange(beam) == 0, np.float32(0), _DEAD)  # equal hypotheses would crowd the beam
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
        """Forgets the sentences that are done."""
        kept = ~self.done
        for field in dataclasses.fields(self):
            if field.name != "finished":
                setattr(self, field.name, getattr(self, field.name)[kept])
        self.finished = _Hypotheses(*(values[kept] for values in self.finished))


class BeamSearch:
    """One search.

    Args:
        session: that has begun, with a beam of more than one and the logarithms of sums.
        table: float32 [vocab, d_model], embedded tokens.
        positions: float32 [steps, d_model], what is added to them; as many as the largest of the limits.
        limits: of the search.
    """

    def __init__(self, session: Session, table: np.ndarray, positions: np.ndarray, limits: Limits) -> None:
        self._session, self._table, self._positions, self._limits = session, table, positions, limits
        batch, beam = len(limits.max_lengths), session.beam_size
        self._length = 0
        self._open = _Open.start(limits, beam)
        self._history = np.zeros((2, len(positions), batch, beam), np.int32)  # tokens, and the slots that they follow
        self._results = _Hypotheses.none(batch, limits.num_best)
        self._has_ended = np.zeros(batch, bool)
        self._newest = newest_bias(beam)

    def run(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Searches.

        Returns:
            Token ids int32 [batch, num_best, steps made], scores and log-probabilities float32 [batch, num_best], and
            lengths int32 [batch, num_best]; see `t2t_keras.search.beam_search.SearchResult`.
        """
        self._settle(self._limits.max_lengths <= 0)
        while len(self._open.sentences):
            candidates = self._candidates()
            ends = (candidates.token_ids == EOS_ID) & (candidates.log_probs > _DEAD)
            self._length += 1
            self._finish(candidates, ends)
            self._live_on(candidates, ends)
            self._settle(self._done())
        scores, log_probs, lengths, _ = self._results
        return self._texts(), scores, log_probs, lengths

    def _candidates(self) -> Candidates:
        """What one step finds."""
        now = self._open
        inputs = self._table[now.tokens.reshape(-1)] + self._positions[self._length]  # --> [open * beam, d_model]
        self._session.advance(inputs, now.sentences, now.bias)
        may_end = self._length >= now.min_lengths
        session = self._session
        return best_candidates(session.logits_in_place(), session.log_totals(), now.log_probs, may_end)

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
        """The best candidates that do not end take the places of the hypotheses that they continue."""
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
        """Which of the open sentences have a result that cannot change any more, bool [open]."""
        now, limits = self._open, self._limits
        bound = now.log_probs[:, 0] / limits.penalties[now.max_lengths]  # see `scoring.best_attainable_score`
        done = (self._length >= now.max_lengths) | (now.finished.scores[:, limits.num_best - 1] >= bound)
        if limits.patience:
            done |= now.num_finished >= np.float32(limits.patience * self._session.beam_size)
        return done

    def _settle(self, done: np.ndarray) -> None:
        """Writes down the results of sentences that are now done, and lets them leave when it is time for that."""
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
        # An end symbol is in no living hypothesis: it is put behind the text that its parent has.
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
