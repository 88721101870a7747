"""Plans which pairs form each batch, from the lengths of the pairs, the settings, the seed and the epoch.

The plan does not depend on the number of replicas, so every worker computes the same one. Training resumes from a
`Position` (two integers) without replaying earlier batches. Pairs of similar length are batched together, as in section
5.1 of the paper.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.data.epoch_parts import PART_PAIRS, part_rows, pass_size, weighted_rows
from t2t_keras.errors import InputError

# Pairs are sorted by their longer side, then by target length minus source length. On Multi30k with 4,096 tokens per
# batch, batches are 97% full, against 95% if sorted by target length first and 93% if sorted by the longer side only.
# Up to one token of noise on the second key costs 1% of fill, but makes the batches of every epoch different.
_NOISE_BITS = 20
_DIFFERENCE_BIAS = 1 << 40

# Static shapes: bucket lengths are multiples of 4, starting at 8. Each exceeds the previous one by 4 or by about 20%,
# whichever is more. Fewer shapes mean fewer programs to compile (18 for lengths up to 256); more shapes mean less
# padding.
_SHORTEST_BUCKET = 8
_LENGTH_MULTIPLE = 4
_LENGTH_GROWTH = 1.2
_ROW_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, order=True)
class Position:
    """A place in the training data: the next batch to read.

    Attributes:
        epoch: number of completed epochs. An epoch is one pass over the corpus, or a part of a pass if the corpus is
            very large (`epoch_parts`).
        batch: index of the next batch in the plan of the epoch.
    """

    epoch: int = 0
    batch: int = 0


class Mixture(NamedTuple):
    """The sizes and sampling weights of consecutive corpora.

    Attributes:
        sizes: number of pairs in each corpus.
        weights: mean number of times that a pair of each corpus occurs in a pass; see `weighted_rows`.
    """

    sizes: Sequence[int]
    weights: Sequence[float]


@dataclasses.dataclass(frozen=True, eq=False)
class EpochPlan:
    """The batches of one pass over a corpus.

    Attributes:
        order: rows of the corpus, batch after batch, int64 [pairs].
        offsets: start of each batch in `order`, followed by the end of the last batch, int64 [num_batches + 1].
        shapes: number of rows, padded source length and padded target length of each batch, int64 [num_batches, 3].
            With static shapes, a batch may have fewer pairs than rows; the remaining rows are padding and do not count
            in the loss.
    """

    order: np.ndarray
    offsets: np.ndarray
    shapes: np.ndarray

    @property
    def num_batches(self) -> int:
        return len(self.shapes)

    def rows(self, batch: int) -> np.ndarray:
        """Returns the corpus rows in a batch, int64 [pairs in the batch]."""
        if not 0 <= batch < self.num_batches:
            raise ValueError(f"batch must be in [0, {self.num_batches}), got {batch}")
        return self.order[self.offsets[batch] : self.offsets[batch + 1]]

    def shape(self, batch: int) -> tuple[int, int, int]:
        """Returns the (rows, padded source length, padded target length) of a batch."""
        rows, source_len, target_len = self.shapes[batch].tolist()
        return rows, source_len, target_len


def plan_epoch(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    tokens_per_batch: int,
    seed: int,
    epoch: int,
    static_shapes: bool = False,
) -> EpochPlan:
    """Plans one training epoch (section 5.1 of the paper).

    Each pair occurs once, pairs of similar length share a batch, and batches are in random order. The number of rows of
    a batch times its longer padded length is at most `tokens_per_batch`. The plan is the same on every machine and for
    any number of replicas.

    Args:
        source_lengths: number of tokens of each source, end symbol included, int [pairs].
        target_lengths: number of tokens of each target, end symbol included, int [pairs].
        tokens_per_batch: token budget of a global batch.
        seed: seed of the run; the seed and the epoch determine all randomness.
        epoch: index of the epoch, from 0.
        static_shapes: whether to use only the batch shapes of `bucket_shapes`.

    Raises:
        InputError: there are no pairs, or a pair is longer than the budget.
        ValueError: the arrays are not one-dimensional, or differ in shape.
    """
    _check_lengths(source_lengths, target_lengths, tokens_per_batch)
    random = np.random.Philox(key=(seed % 2**64) + (epoch << 64))  # NumPy guarantees that raw draws never change
    draws = random.random_raw(len(source_lengths))
    noise = (draws >> np.uint64(63 - _NOISE_BITS)).astype(np.int64) - (1 << _NOISE_BITS)
    # A first batch of random size shifts all later cuts, so that pairs near a cut change batches between epochs.
    first = int(random.random_raw()) >> 1
    cut = _cut_by_bucket if static_shapes else _cut_by_budget
    order, offsets, shapes = cut(source_lengths, target_lengths, tokens_per_batch, noise, first)
    shuffled = np.argsort(random.random_raw(len(shapes)), kind="stable")
    order, offsets = _permute(order, offsets, shuffled)
    return EpochPlan(order, offsets, shapes[shuffled])


def plan_in_length_order(
    source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int, static_shapes: bool = False
) -> EpochPlan:
    """Plans one pass in order of length without randomness, for validation; arguments and errors as in `plan_epoch`."""
    _check_lengths(source_lengths, target_lengths, tokens_per_batch)
    cut = _cut_by_bucket if static_shapes else _cut_by_budget
    noise = np.zeros(len(source_lengths), np.int64)
    return EpochPlan(*cut(source_lengths, target_lengths, tokens_per_batch, noise))


def bucket_shapes(longest: int, tokens_per_batch: int) -> np.ndarray:
    """Returns the batch shapes that `static_shapes` allows.

    The number of rows times the length is at most `tokens_per_batch`.

    Args:
        longest: longest side of any pair, at most `tokens_per_batch`; the last bucket is at least this long.
        tokens_per_batch: token budget of a global batch.

    Returns:
        The number of rows and the padded length (of both sides) of each bucket, int64 [buckets, 2], with increasing
        lengths.
    """
    lengths = [_SHORTEST_BUCKET]
    while lengths[-1] < longest:
        next_length = max(lengths[-1] + _LENGTH_MULTIPLE, int(lengths[-1] * _LENGTH_GROWTH))
        lengths.append(-(-min(next_length, longest) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE)
    lengths = [min(length, tokens_per_batch) for length in lengths]
    rows = [tokens_per_batch // length for length in lengths]
    even_rows = [count - count % _ROW_MULTIPLE if count >= _ROW_MULTIPLE else count for count in rows]
    return np.array([even_rows, lengths], np.int64).T  # --> [buckets, 2]


class EpochPlans:
    """The plans of all epochs of a training run, computed on demand."""

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        tokens_per_batch: int,
        seed: int,
        static_shapes: bool = False,
        mixture: Mixture | None = None,
        *,
        part_pairs: int = PART_PAIRS,
    ) -> None:
        """Checks the lengths and the weights.

        Args:
            source_lengths: see `plan_epoch`.
            target_lengths: see `plan_epoch`.
            tokens_per_batch: see `plan_epoch`.
            seed: see `plan_epoch`.
            static_shapes: see `plan_epoch`.
            mixture: sizes and weights of the corpora that the pairs come from; None uses each pair once per pass.
            part_pairs: largest number of pairs to plan at once. A longer pass is planned in parts, each of which counts
                as an epoch.

        Raises:
            InputError: as in `plan_epoch`, or the weights of the mixture give no pairs or too many (`pass_size`).
            ValueError: as in `plan_epoch`.
        """
        _check_lengths(source_lengths, target_lengths, tokens_per_batch)
        self._lengths = (source_lengths, target_lengths)
        self._tokens_per_batch, self._seed = tokens_per_batch, seed
        self._mixture = mixture
        pairs = pass_size(*mixture) if mixture else len(source_lengths)
        self._parts = -(-pairs // part_pairs)
        self._static_shapes = static_shapes
        self._cached: dict[int, EpochPlan] = {}

    def plan(self, epoch: int) -> EpochPlan:
        """Returns the plan of an epoch; the last two plans are cached."""
        cached = self._cached  # replaced, never mutated, because the thread of the input pipeline reads it too
        if epoch not in cached:
            cached = {**dict(list(cached.items())[-1:]), epoch: self._plan_of(epoch)}
            self._cached = cached
        return cached[epoch]

    def _plan_of(self, epoch: int) -> EpochPlan:
        is_whole = self._parts == 1 and not self._mixture
        rows = slice(None) if is_whole else self._rows(epoch)
        source_lengths, target_lengths = (lengths[rows] for lengths in self._lengths)
        plan = plan_epoch(
            source_lengths, target_lengths, self._tokens_per_batch, self._seed, epoch, self._static_shapes
        )
        return plan if isinstance(rows, slice) else dataclasses.replace(plan, order=rows[plan.order])

    def _rows(self, epoch: int) -> np.ndarray:
        """Returns the corpus rows of an epoch, int64 [rows]."""
        if not self._mixture:
            return part_rows(len(self._lengths[0]), self._parts, self._seed, epoch)
        rows = weighted_rows(*self._mixture, self._seed, epoch // self._parts)
        return rows if self._parts == 1 else rows[part_rows(len(rows), self._parts, self._seed, epoch)]

    def advance(self, position: Position, batches: int) -> Position:
        """Returns the position `batches` batches later; the end of an epoch becomes the start of the next one."""
        if batches < 0:
            raise ValueError(f"batches must not be negative, got {batches}")
        epoch, batch = position.epoch, position.batch + batches
        while batch >= self.plan(epoch).num_batches:
            batch -= self.plan(epoch).num_batches
            epoch += 1
        return Position(epoch, batch)

    def epochs(self, position: Position) -> float:
        """Returns the number of passes over the corpus before a position, as a fraction."""
        return (position.epoch + position.batch / self.plan(position.epoch).num_batches) / self._parts

    def num_batches(self, epochs: float) -> int:
        """Returns the number of batches in a number of passes, at least 1, estimated from the first epoch."""
        return max(1, round(epochs * self._parts * self.plan(0).num_batches))

    def positions(self, start: Position) -> Iterator[Position]:
        """Yields all positions from `start` on, endlessly."""
        position = self.advance(start, 0)
        while True:
            yield position
            position = self.advance(position, 1)

    def largest_shapes(self, epoch: int = 0) -> list[tuple[int, int, int]]:
        """Returns the one or two batch shapes of an epoch that need the most memory.

        Activations grow with rows times length, and attention weights with rows times length squared. Each measure
        selects one shape. The shapes of other epochs differ by a few tokens.

        Returns:
            The (rows, padded source length, padded target length) of each shape.
        """
        plan = self.plan(epoch)
        rows, source_len, target_len = plan.shapes.T
        tokens = rows * (source_len + target_len)
        weights = rows * (source_len**2 + target_len**2 + source_len * target_len)
        return [plan.shape(batch) for batch in dict.fromkeys([int(tokens.argmax()), int(weights.argmax())])]


def _check_lengths(source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int) -> None:
    if source_lengths.ndim != 1 or source_lengths.shape != target_lengths.shape:
        raise ValueError(
            "source_lengths and target_lengths must be [pairs], "
            f"got shapes {source_lengths.shape} and {target_lengths.shape}"
        )
    if not len(source_lengths):
        raise InputError("the corpus has no pairs")
    longest = int(max(source_lengths.max(), target_lengths.max()))
    if longest > tokens_per_batch:
        row = int(np.maximum(source_lengths, target_lengths).argmax())
        raise InputError(
            f"pair {row} (counted from 0) has {longest} tokens on its longer side, more than a whole batch: "
            f"train.tokens_per_batch={tokens_per_batch} must be at least {longest}"
        )


def _cut_by_budget(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    tokens_per_batch: int,
    noise: np.ndarray,
    first: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts pairs by length and cuts them into the largest batches that fit the budget.

    Args:
        source_lengths: see `plan_epoch`.
        target_lengths: see `plan_epoch`.
        tokens_per_batch: see `plan_epoch`.
        noise: added to the second sort key in units of 2 ** -_NOISE_BITS tokens, int64 [pairs].
        first: if given, the first batch gets only 1 + first % n of the n rows that would fit.

    Returns:
        The order, offsets and shapes of an `EpochPlan`.
    """
    longest = np.maximum(source_lengths, target_lengths).astype(np.int64)
    difference = ((target_lengths.astype(np.int64) - source_lengths) << _NOISE_BITS) + noise
    # The second key alternates between ascending and descending, so that a batch that spans two values of the first key
    # has similar length differences.
    difference = np.where(longest % 2, difference, -difference)
    order = np.argsort((longest << 41) + (difference + _DIFFERENCE_BIAS), kind="stable")
    longest = longest[order]
    most_rows = np.arange(1, tokens_per_batch // int(longest[0]) + 1)
    starts = [0]
    while starts[-1] < len(longest):
        start = starts[-1]
        window = np.maximum.accumulate(longest[start : start + tokens_per_batch // int(longest[start])])
        rows = int(np.count_nonzero(window * most_rows[: len(window)] <= tokens_per_batch))
        starts.append(start + rows if start or first is None else 1 + first % rows)
    offsets = np.array(starts, np.int64)
    sides = [np.maximum.reduceat(lengths[order], offsets[:-1]) for lengths in (source_lengths, target_lengths)]
    shapes = np.stack([np.diff(offsets), *sides], axis=1).astype(np.int64)  # --> [num_batches, 3]
    return order, offsets, shapes


def _cut_by_bucket(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    tokens_per_batch: int,
    noise: np.ndarray,
    first: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts pairs into the buckets of `bucket_shapes`, and by noise within each.

    Args:
        source_lengths: see `plan_epoch`.
        target_lengths: see `plan_epoch`.
        tokens_per_batch: see `plan_epoch`.
        noise: see `_cut_by_budget`.
        first: not used, because the random order within a bucket suffices.

    Returns:
        The order, offsets and shapes of an `EpochPlan`.
    """
    longest = np.maximum(source_lengths, target_lengths)
    cells = bucket_shapes(int(longest.max()), tokens_per_batch)
    rows, lengths = cells.T
    bucket = np.searchsorted(lengths, longest)  # --> [pairs], the shortest bucket that the pair fits in
    order = np.argsort((bucket << 41) + (noise + _DIFFERENCE_BIAS), kind="stable")
    pairs = np.bincount(bucket, minlength=len(cells))  # --> [buckets]
    batches = -(-pairs // rows)  # --> [buckets]
    shapes = np.repeat(cells[:, [0, 1, 1]], batches, axis=0)  # --> [num_batches, 3]
    sizes = shapes[:, 0].copy()
    is_used = batches > 0
    sizes[np.cumsum(batches)[is_used] - 1] -= (batches * rows - pairs)[is_used]
    return order, np.concatenate([[0], np.cumsum(sizes)]), shapes


def _permute(order: np.ndarray, offsets: np.ndarray, batch_order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reorders the batches; returns the new order, int64 [pairs], and offsets, int64 [num_batches + 1]."""
    sizes = np.diff(offsets)[batch_order]
    new_offsets = np.concatenate([[0], np.cumsum(sizes)])
    source = np.arange(len(order)) + np.repeat(offsets[:-1][batch_order] - new_offsets[:-1], sizes)
    return order[source], new_offsets
