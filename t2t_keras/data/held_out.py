"""Draws validation and test sets from the training text of a corpus that has none."""

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
    """The training text of a corpus: how many pairs it has, and parts of it that are held out.

    The text is read when something is first asked for. Pairs that have an empty side, damaged characters or equal sides
    are neither counted nor held out. Sixteen bytes a pair stay in memory.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    @functools.cached_property
    def pairs(self) -> int:
        """The number of different usable pairs."""
        return len(np.unique(self._hashes["pair"]))

    def holding_out(self, sizes: Mapping[str, int]) -> Corpus:
        """The corpus with sets drawn from its training text.

        Which pairs are drawn depends on the text alone, and not on its order: sentences that occur often are as likely
        as others. No two drawn pairs have a source or a target in common, and none has one of the corpus' own sets.
        The training text stays as it is: whoever prepares it leaves out what is held out. `sizes` say how many pairs to
        draw for "valid" and "test"; a split that the corpus has is not drawn.
        """
        missing = {split: size for split, size in sizes.items() if split not in self._corpus.splits}
        drawn = functools.cache(functools.partial(self._drawn, missing))
        splits = {split: functools.partial(lambda name: drawn()[name], split) for split in missing}
        identity = {f"drawn_{split}": str(size) for split, size in missing.items()}
        return dataclasses.replace(
            self._corpus,
            splits={**self._corpus.splits, **splits},
            identity={**self._corpus.identity, **identity},
        )

    @functools.cached_property
    def _hashes(self) -> np.ndarray:
        """Hashes of the source, and of both sides, of each usable pair, uint64 [pairs] each."""
        hashes = ((key, int.from_bytes(fingerprint(pair), "little")) for key, pair in self._usable())
        return np.fromiter(hashes, np.dtype([("source", np.uint64), ("pair", np.uint64)]))

    def _usable(self) -> Iterator[tuple[int, Pair]]:
        for raw in self._corpus.splits["train"]():
            if any(map(is_damaged, raw)):
                continue
            source, target = map(repair, raw)
            if source.strip() and target.strip() and source != target:
                digest = hashlib.blake2b(comparison_key(source).encode(), digest_size=8).digest()
                yield int.from_bytes(digest, "little"), (source, target)

    def _drawn(self, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
        """The first pairs in the order of their sources' hashes, without those that resemble an earlier one."""
        needed = sum(sizes.values())
        keys = np.unique(self._hashes["source"])
        last = keys[min(len(keys), 4 * needed + 100) - 1] if len(keys) else 0
        candidates: dict[int, Pair] = {}
        for key, pair in self._usable():
            if key <= last:
                candidates.setdefault(key, pair)
        seen = HeldOut()
        chosen: list[Pair] = []
        for split in self._corpus.splits.keys() - {"train"}:
            seen.add(self._corpus.splits[split]())
        for key in sorted(candidates):
            if len(chosen) < needed and candidates[key] not in seen:
                seen.add([candidates[key]])
                chosen.append(candidates[key])
        if len(chosen) < needed:
            raise InputError(
                f"only {len(chosen):,} pairs with different sentences can be held out, {needed:,} were asked for, for "
                "all sets together: lower --held_out_pairs"
            )
        remaining = iter(chosen)
        return {split: [next(remaining) for _ in range(size)] for split, size in sizes.items()}
