"""Draws validation and test sets from the training text of a corpus without them."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from t2t_keras.data.cleaning import HeldOut, Pair, comparison_key, fingerprint, is_damaged
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.text.repair import repair


class TextSurvey:
    """Counts the training pairs of a corpus, and draws held-out sets from them.

    The text is read at the first use. Pairs with an empty side, damaged characters or equal sides are neither counted
    nor drawn. Each pair takes 16 bytes of memory.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    @functools.cached_property
    def pairs(self) -> int:
        """The number of distinct usable pairs."""
        return len(np.unique(self._hashes["pair"]))

    def holding_out(self, sizes: Mapping[str, int]) -> Corpus:
        """Returns the corpus with additional sets, drawn from its training text.

        Pairs are drawn in the order of a hash of the source. The draw does not depend on the order of the text, except
        for the choice among several targets of a source, and frequent sentences are as likely as others. No two drawn
        pairs share a source or a target, and none shares one with an existing set of the corpus. The drawn pairs remain
        in the training text; `prepare` removes them.

        Args:
            sizes: number of pairs to draw for "valid" and "test"; splits that the corpus already has are not drawn.
        """
        missing = {split: size for split, size in sizes.items() if split not in self._corpus.splits}
        draw = functools.cache(functools.partial(self._draw, missing))
        splits = {split: functools.partial(lambda name: draw()[name], split) for split in missing}
        identity = {f"drawn_{split}": str(size) for split, size in missing.items()}
        return dataclasses.replace(
            self._corpus,
            splits={**self._corpus.splits, **splits},
            identity={**self._corpus.identity, **identity},
        )

    @functools.cached_property
    def _hashes(self) -> np.ndarray:
        """The hashes of each usable pair: "source" of the source and "pair" of both sides, uint64 [pairs] each."""
        hashes = ((key, fingerprint(pair)) for key, pair in self._usable_pairs())
        return np.fromiter(hashes, np.dtype([("source", np.uint64), ("pair", np.uint64)]))

    def _usable_pairs(self) -> Iterator[tuple[int, Pair]]:
        """Yields the hash of the source, and the repaired pair, of each usable pair."""
        for raw in self._corpus.splits["train"]():
            if any(map(is_damaged, raw)):
                continue
            source, target = map(repair, raw)
            if source.strip() and target.strip() and source != target:
                digest = hashlib.blake2b(comparison_key(source).encode(), digest_size=8).digest()
                yield int.from_bytes(digest, "little"), (source, target)

    def _draw(self, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
        """Draws the first pairs in the order of the source hashes, skipping pairs that resemble an earlier one."""
        total = sum(sizes.values())
        keys = np.unique(self._hashes["source"])
        last = keys[min(len(keys), 4 * total + 100) - 1] if len(keys) else 0
        candidates: dict[int, Pair] = {}
        for key, pair in self._usable_pairs():
            if key <= last:
                candidates.setdefault(key, pair)
        exclusions = HeldOut()
        sample: list[Pair] = []
        for split in self._corpus.splits.keys() - {"train"}:
            exclusions.add(self._corpus.splits[split]())
        for key in sorted(candidates):
            if len(sample) < total and candidates[key] not in exclusions:
                exclusions.add([candidates[key]])
                sample.append(candidates[key])
        if len(sample) < total:
            raise InputError(
                f"only {len(sample):,} pairs with different sentences can be held out, but all sets together need "
                f"{total:,}: lower --held_out_pairs"
            )
        remaining = iter(sample)
        return {split: [next(remaining) for _ in range(size)] for split, size in sizes.items()}
