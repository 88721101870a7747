"""Repairs and filters sentence pairs, and counts the changes.

Sentences are repaired in every split, so that each fits on one line. Pairs are dropped only from the training split, so
that validation and test sets keep all their published pairs.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

from t2t_keras.config.data_config import Lowercase
from t2t_keras.text.languages import words
from t2t_keras.text.repair import CONTROL, REPAIRABLE, lowercased, repair
from t2t_keras.text.sentences import find_sentences
from t2t_keras.text.tokenizer import MAX_PIECE_CHARACTERS

# The reasons for dropping a pair, in display order.
REASONS = {
    "empty": "a side is empty",
    "invalid_characters": "damaged text: U+FFFD, control or private-use characters",
    "identical": "both sides are equal",
    "too_long": "more tokens than max_length",
    "length_ratio": "sides differ by more than max_length_ratio",
    "held_out": "a side occurs in validation or test data",
    "duplicate": "the pair is a duplicate",
    "validation": "drawn for the validation set",
}

_PRIVATE = "\ue000-\uf8ff\U000f0000-\U0010ffff"
_BROKEN = "\ud800-\udfff\ufdd0-\ufdef\ufffd-\uffff"

_DAMAGE = re.compile(f"[{CONTROL}{_PRIVATE}{_BROKEN}]")

Pair = tuple[str, str]


def is_damaged(text: str) -> bool:
    """Returns whether a text has characters that come only from a wrong encoding or from binary data."""
    return _DAMAGE.search(text) is not None


def comparison_key(text: str) -> str:
    """Returns a key that is equal for sentences with the same words, regardless of case, spaces and punctuation.

    Combining marks belong to their words, because they are the vowels of Hindi and Thai. Composed and decomposed
    letters are equal. A text without words is its own key.
    """
    return " ".join(words(text.casefold())) or text


class HeldOut:
    """A set of sentences that training must not see, compared without case, punctuation and tags.

    Args:
        sides: sides of the pairs to compare; 0 is the source, 1 the target.
        tags: words that may precede sources, and are ignored in comparisons.
    """

    def __init__(self, sides: Iterable[int] = (0, 1), tags: Iterable[str] = ()) -> None:
        self._keys: dict[int, set[str]] = {side: set() for side in sides}
        self._starts = tuple(f"{tag} " for tag in tags if tag)

    def add(self, pairs: Iterable[Pair]) -> None:
        """Adds the sentences of pairs."""
        for pair in pairs:
            for side, keys in self._keys.items():
                keys.add(self._key(pair[side]))

    def __contains__(self, pair: Pair) -> bool:
        """Returns whether one of the sides of a pair is held out."""
        return any(self._key(pair[side]) in keys for side, keys in self._keys.items())

    def without_tag(self, text: str) -> str:
        """Removes the tag at the beginning of a source."""
        return text.partition(" ")[2] if f"{text} ".startswith(self._starts) else text

    def _key(self, text: str) -> str:
        return comparison_key(self.without_tag(text))


class Cleaner:
    """Cleans a split pair by pair and counts the changes.

    Args:
        lowercase: the sides to lowercase first; see `DataConfig.lowercase`.
        language: language code of the sources, to count sources of several sentences; None does not count them.

    Attributes:
        counts: number of pairs "read", "repaired" and "kept" and, for training, dropped for each of `REASONS`.
        several_sentences: number of pairs kept for training whose sources have several sentences.
    """

    def __init__(self, lowercase: Lowercase = "none", language: str | None = None) -> None:
        self.counts: dict[str, int] = {"read": 0, "kept": 0, "repaired": 0}
        self.several_sentences = 0
        self._lowercase, self._language = lowercase, language

    def for_evaluation(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields all pairs, repaired."""
        for pair in pairs:
            clean_pair = self._repair(pair)
            self.counts["kept"] += 1
            yield clean_pair

    def for_training(
        self,
        pairs: Iterable[Pair],
        max_length: int,
        held_out: HeldOut,
        *,
        cuts_sources: bool = False,
        keeps_identical: bool = False,
    ) -> Iterator[Pair]:
        """Yields the repaired pairs that are suitable for training.

        Args:
            pairs: the pairs.
            max_length: largest number of tokens on a side, end symbol included. Only pairs that certainly exceed it are
                dropped here; `length_reason` checks the others after encoding.
            held_out: sentences of other splits.
            cuts_sources: whether sources may have any length, because they are split or truncated later.
            keeps_identical: whether to keep pairs with equal sides, for labels, which may be words of the text.
        """
        self.counts.update(dict.fromkeys(REASONS, 0))
        for raw in pairs:
            pair = self._repair(raw)
            text = (held_out.without_tag(pair[0]), pair[1])
            if reason := _reason_to_drop(raw, text, max_length * MAX_PIECE_CHARACTERS, cuts_sources):
                self.counts[reason] += 1
            elif text[0] == text[1] and not keeps_identical:
                self.counts["identical"] += 1
            elif pair in held_out:
                self.counts["held_out"] += 1
            else:
                self.counts["kept"] += 1
                if self._language is not None:  # uses `raw`, because finding sentences needs the case
                    self.several_sentences += len(find_sentences(raw[0], self._language)) > 1
                yield pair

    def _repair(self, pair: Pair) -> Pair:
        self.counts["read"] += 1
        self.counts["repaired"] += any(map(REPAIRABLE.search, pair))
        source, target = pair
        if self._lowercase != "none":
            source = lowercased(source)
        if self._lowercase == "both":
            target = lowercased(target)
        return repair(source), repair(target)


def length_reason(source_length: int, target_length: int, max_length: int, max_length_ratio: float) -> str | None:
    """Returns the reason to drop a training pair for its lengths in tokens (end symbols included); None keeps it."""
    shorter, longer = sorted((source_length, target_length))
    if longer > max_length:
        return "too_long"
    return "length_ratio" if longer > shorter * max_length_ratio else None


def _reason_to_drop(raw: Pair, pair: Pair, max_characters: int, cuts_sources: bool) -> str | None:
    """Returns the reason to drop a repaired pair for its text; None keeps it.

    Damage is searched for in `raw`, the pair before the repair, which removes some of it.
    """
    if any(map(is_damaged, raw)):
        return "invalid_characters"
    if not all(map(str.strip, pair)):
        return "empty"
    if len(pair[1] if cuts_sources else max(pair, key=len)) >= max_characters:
        return "too_long"
    return None


def fingerprint(pair: Pair) -> int:
    """Returns a 64-bit hash of a pair, to compare millions of pairs without their text in memory."""
    digest = hashlib.blake2b("\n".join(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
