"""The epoch plan: which pairs make which batch, from the lengths, the seed and the epoch alone.

A plan is a pure function of its arguments, so every worker makes the same one,
whatever the number of replicas, and the place in the data is a `Position`: two
integers, from which training resumes without replaying anything. Pairs of
similar length share a batch, as in section 5.1 of the paper.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from t2t_keras.data.epoch_parts import PART_PAIRS, num_parts, part_rows
from t2t_keras.errors import InputError

# Pairs are sorted by their longer side, then by how much the target is longer than the source. On Multi30k at 4,096
# tokens that fills batches to 97%, against 95% for target length first and 93% for the longer side alone. Up to one
# token of noise on the second key (1% of fill) gives every epoch batches of its own.
_NOISE_BITS = 20
_DIFFERENCE_BIAS = 1 << 40

# Static shapes: lengths from 8 in multiples of 4, each 4 or about a fifth above the one before.
# Fewer shapes mean fewer programs to compile (18 for lengths up to 256), more shapes mean less padding.
_SHORTEST_BUCKET = 8
_LENGTH_MULTIPLE = 4
_LENGTH_GROWTH = 1.2
_ROW_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, order=True)
class Position:
    """A place in the training data: the next batch to be read.

    Attributes:
        epoch: passes made before; of a very large corpus, parts of passes (`epoch_parts`).
        batch: index of the next batch in that epoch's plan.
    """

    epoch: int = 0
    batch: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class EpochPlan:
    """The batches of one pass over a corpus.

    Attributes:
        order: rows of the corpus, batch after batch, int64 [pairs].
        offsets: where each batch starts in `order`, and the end, int64 [num_batches + 1].
        shapes: rows, padded source and padded target length of each batch, int64 [num_batches, 3]. With static
            shapes a batch can have fewer pairs than its shape has rows: the rest are empty rows without weight.
        source_tokens: real source tokens of the pass.
        target_tokens: real target tokens of the pass.
    """

    order: np.ndarray
    offsets: np.ndarray
    shapes: np.ndarray
    source_tokens: int
    target_tokens: int

    @property
    def num_batches(self) -> int:
        """Batches in the pass."""
        return len(self.shapes)

    @property
    def fill(self) -> float:
        """Real target tokens over padded ones, in (0, 1]."""
        return self.target_tokens / int(self.shapes[:, 0] @ self.shapes[:, 2])

    @property
    def source_fill(self) -> float:
        """Real source tokens over padded ones, in (0, 1]."""
        return self.source_tokens / int(self.shapes[:, 0] @ self.shapes[:, 1])

    def rows(self, batch: int) -> np.ndarray:
        """The rows of the corpus that make a batch, int64 [pairs of the batch]."""
        if not 0 <= batch < self.num_batches:
            raise ValueError(f"batch must be in [0, {self.num_batches}), got {batch}")
        return self.order[self.offsets[batch] : self.offsets[batch + 1]]

    def shape(self, batch: int) -> tuple[int, int, int]:
        """A batch's (rows, padded source length, padded target length)."""
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
    """Plans one epoch of training: every pair once, similar lengths together, batches in random order.

    Section 5.1 of the paper. A batch's rows times its longer padded side stay
    within `tokens_per_batch`.

    Args:
        source_lengths: tokens of each source, end symbol included, int [pairs].
        target_lengths: the same of each target.
        tokens_per_batch: budget of a global batch.
        seed: of the run; with the epoch it decides everything that is random.
        epoch: which pass, from 0.
        static_shapes: take the batches' shapes from `bucket_shapes` only.

    Returns:
        The plan; the same on every machine and for any number of replicas.

    Raises:
        InputError: there are no pairs, or one is longer than the budget.
        ValueError: the two arrays differ in shape.
    """
    longest = _longer_sides(source_lengths, target_lengths, tokens_per_batch)
    random = np.random.Philox(key=(seed % 2**64) + (epoch << 64))  # raw draws: NumPy promises these never change
    noise = (random.random_raw(len(longest)) >> np.uint64(63 - _NOISE_BITS)).astype(np.int64) - (1 << _NOISE_BITS)
    # A random first cut moves all later ones, so that pairs at the edge of a batch change company.
    first = int(random.random_raw() >> np.uint64(1))
    cut = _cut_by_bucket if static_shapes else _cut_by_budget
    order, offsets, shapes = cut(source_lengths, target_lengths, tokens_per_batch, noise, first)
    shuffled = np.argsort(random.random_raw(len(shapes)), kind="stable")
    order, offsets = _permuted(order, offsets, shuffled)
    return EpochPlan(order, offsets, shapes[shuffled], _total(source_lengths), _total(target_lengths))


def plan_in_length_order(
    source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int, static_shapes: bool = False
) -> EpochPlan:
    """Plans one pass with nothing random, shortest pairs first, as validation reads.

    Args:
        source_lengths: tokens of each source, end symbol included, int [pairs].
        target_lengths: the same of each target.
        tokens_per_batch: budget of a global batch.
        static_shapes: take the batches' shapes from `bucket_shapes` only.

    Returns:
        The plan.

    Raises:
        InputError: there are no pairs, or one is longer than the budget.
        ValueError: the two arrays differ in shape.
    """
    longest = _longer_sides(source_lengths, target_lengths, tokens_per_batch)
    cut = _cut_by_bucket if static_shapes else _cut_by_budget
    order, offsets, shapes = cut(source_lengths, target_lengths, tokens_per_batch, np.zeros(len(longest), np.int64))
    return EpochPlan(order, offsets, shapes, _total(source_lengths), _total(target_lengths))


def bucket_shapes(longest: int, tokens_per_batch: int) -> np.ndarray:
    """The shapes that batches can have under `static_shapes`.

    Args:
        longest: longest side of any pair, in tokens.
        tokens_per_batch: budget of a global batch; at least `longest`.

    Returns:
        Rows and length (of both sides) of each bucket, lengths rising, int64 [buckets, 2]. Rows times length stays
        within the budget; the last length is at least `longest`.
    """
    lengths = [_SHORTEST_BUCKET]
    while lengths[-1] < longest:
        grown = max(lengths[-1] + _LENGTH_MULTIPLE, int(lengths[-1] * _LENGTH_GROWTH))
        lengths.append(_rounded_up(min(grown, longest), _LENGTH_MULTIPLE))
    lengths = [min(length, tokens_per_batch) for length in lengths]
    rows = [tokens_per_batch // length for length in lengths]
    even_rows = [count - count % _ROW_MULTIPLE if count >= _ROW_MULTIPLE else count for count in rows]
    return np.array([even_rows, lengths], np.int64).T  # --> [buckets, 2]


class EpochPlans:
    """All epochs of a training run: plans made when needed, and positions among them."""

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        tokens_per_batch: int,
        seed: int,
        static_shapes: bool = False,
        part_pairs: int = PART_PAIRS,
    ) -> None:
        """Checks the lengths; plans nothing yet.

        Args:
            source_lengths: tokens of each source, end symbol included, int [pairs].
            target_lengths: the same of each target.
            tokens_per_batch: budget of a global batch.
            seed: of the run.
            static_shapes: take the batches' shapes from `bucket_shapes` only.
            part_pairs: a pass over more pairs than this is planned in parts, each counted as an epoch.

        Raises:
            InputError: there are no pairs, or one is longer than the budget.
            ValueError: the two arrays differ in shape.
        """
        _check_lengths(source_lengths, target_lengths, tokens_per_batch)
        self._lengths = (source_lengths, target_lengths)
        self._tokens_per_batch, self._seed = tokens_per_batch, seed
        self._parts = num_parts(len(source_lengths), part_pairs)
        self._static_shapes = static_shapes
        self._cached: dict[int, EpochPlan] = {}

    def plan(self, epoch: int) -> EpochPlan:
        """The plan of an epoch; the two used last are kept."""
        cached = self._cached  # replaced, never changed: the pipeline's thread reads it too
        if epoch not in cached:
            cached = {**dict(list(cached.items())[-1:]), epoch: self._planned(epoch)}
            self._cached = cached
        return cached[epoch]

    def _planned(self, epoch: int) -> EpochPlan:
        settings = (self._tokens_per_batch, self._seed, epoch, self._static_shapes)
        if self._parts == 1:
            return plan_epoch(*self._lengths, *settings)
        rows = part_rows(len(self._lengths[0]), self._parts, self._seed, epoch)
        plan = plan_epoch(*(lengths[rows] for lengths in self._lengths), *settings)
        return dataclasses.replace(plan, order=rows[plan.order])

    def advance(self, position: Position, batches: int) -> Position:
        """The position that many batches further on, in whichever epoch that is.

        The result always names a batch that exists: the end of one epoch is the start of the next.
        """
        if batches < 0:
            raise ValueError(f"batches must not be negative, got {batches}")
        epoch, batch = position.epoch, position.batch + batches
        while batch >= self.plan(epoch).num_batches:
            batch -= self.plan(epoch).num_batches
            epoch += 1
        return Position(epoch, batch)

    def positions(self, start: Position) -> Iterator[Position]:
        """The positions from `start` on, without end."""
        position = self.advance(start, 0)
        while True:
            yield position
            position = self.advance(position, 1)

    def largest_shapes(self, epoch: int = 0) -> list[tuple[int, int, int]]:
        """The batch shapes of an epoch that need the most memory.

        Activations grow with rows times length and attention weights with rows times length squared, so the
        largest by either measure are given: one shape, or two.

        Args:
            epoch: whose plan to look at; other epochs' differ by a few tokens.

        Returns:
            (rows, padded source length, padded target length) of each.
        """
        plan = self.plan(epoch)
        rows, source_len, target_len = plan.shapes.T
        tokens = rows * (source_len + target_len)
        weights = rows * (source_len**2 + target_len**2 + source_len * target_len)
        return [plan.shape(batch) for batch in dict.fromkeys([int(tokens.argmax()), int(weights.argmax())])]


def _longer_sides(source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int) -> np.ndarray:
    """The longer side of each pair, int64 [pairs], checked against the budget."""
    _check_lengths(source_lengths, target_lengths, tokens_per_batch)
    return np.maximum(source_lengths, target_lengths).astype(np.int64)


def _check_lengths(source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int) -> None:
    if source_lengths.ndim != 1 or source_lengths.shape != target_lengths.shape:
        raise ValueError(
            "source_lengths and target_lengths must be [pairs], "
            f"got shapes {source_lengths.shape} and {target_lengths.shape}"
        )
    if not len(source_lengths):
        raise InputError("the corpus has no pairs to make batches of")
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
    """Sorts pairs by length and cuts them into batches, each as large as the budget allows.

    Args:
        source_lengths: of the pairs.
        target_lengths: of the pairs.
        tokens_per_batch: largest rows times longest side of a batch.
        noise: int64 [pairs], within +-2 ** _NOISE_BITS, which stands for one token.
        first: when given, the first batch gets 1 + first % n rows of the n that would fit.

    Returns:
        Rows in order, int64 [pairs]; offsets, int64 [num_batches + 1]; shapes, int64 [num_batches, 3].
    """
    longest = np.maximum(source_lengths, target_lengths).astype(np.int64)
    difference = ((target_lengths.astype(np.int64) - source_lengths) << _NOISE_BITS) + noise
    # Rising and falling in turn: a batch that spans two values of the longer side joins pairs of like difference.
    difference = np.where(longest % 2, difference, -difference)
    order = np.argsort((longest << 41) + (difference + _DIFFERENCE_BIAS), kind="stable")
    longest = longest[order]
    most_rows = np.arange(1, tokens_per_batch // int(longest[0]) + 1)
    starts = [0]
    while starts[-1] < len(longest):
        start = starts[-1]
        window = np.maximum.accumulate(longest[start : start + tokens_per_batch // int(longest[start])])
        rows = np.count_nonzero(window * most_rows[: len(window)] <= tokens_per_batch)
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
    """Deals pairs into the buckets of `bucket_shapes`, in the order of the noise within each; as `_cut_by_budget`."""
    del first  # pairs within a bucket are in random order already
    longest = np.maximum(source_lengths, target_lengths)
    cells = bucket_shapes(int(longest.max()), tokens_per_batch)
    rows, lengths = cells.T
    bucket = np.searchsorted(lengths, longest)  # --> [pairs], the shortest that holds the pair
    order = np.argsort((bucket << 41) + (noise + _DIFFERENCE_BIAS), kind="stable")
    pairs = np.bincount(bucket, minlength=len(cells))  # --> [buckets]
    batches = -(-pairs // rows)  # --> [buckets]
    shapes = np.repeat(cells[:, [0, 1, 1]], batches, axis=0)  # --> [num_batches, 3]
    sizes = shapes[:, 0].copy()
    used = batches > 0
    sizes[np.cumsum(batches)[used] - 1] -= (batches * rows - pairs)[used]
    return order, np.concatenate([[0], np.cumsum(sizes)]), shapes


def _permuted(order: np.ndarray, offsets: np.ndarray, shuffled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same batches in another order: rows int64 [pairs] and offsets int64 [num_batches + 1]."""
    sizes = np.diff(offsets)[shuffled]
    moved = np.concatenate([[0], np.cumsum(sizes)])
    source = np.arange(len(order)) + np.repeat(offsets[:-1][shuffled] - moved[:-1], sizes)
    return order[source], moved


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _total(lengths: np.ndarray) -> int:
    return int(lengths.sum(dtype=np.int64))
