"""Sentence GLEU by its definition."""

import collections


def gleu_in_python(candidate: list[int], reference: list[int]) -> float:
    """Wu et al. 2016, section 5: the minimum of precision and recall of all 1-, 2-, 3- and 4-grams."""
    candidate, reference = ([token for token in ids if token > 1] for ids in (candidate, reference))

    def grams(ids: list[int]) -> collections.Counter:
        return collections.Counter(tuple(ids[i : i + n]) for n in range(1, 5) for i in range(len(ids) - n + 1))

    ours, theirs = grams(candidate), grams(reference)
    matches = (ours & theirs).total()
    return min(matches / counts.total() if counts else 0.0 for counts in (ours, theirs))
