"""Repairs and filters sentence pairs, and counts what was done.

Sentences are repaired in every split, so that each stays on one line. Pairs are dropped only from the training split,
so that validation and test sets stay as published.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

from t2t_keras.text.languages import words
from t2t_keras.text.repair import CONTROL, REPAIRABLE, lowercased, repair
from t2t_keras.text.sentences import find_sentences
from t2t_keras.text.tokenizer import MAX_PIECE_CHARACTERS

# The reasons for dropping a pair, in display order.
REASONS = {
    "empty": "a side is empty",
    "invalid_characters": "damaged text: U+FFFD, control or private-use characters",
    "identical": "both sides are the same",
    "too_long": "more tokens than max_length",
    "length_ratio": "sides differ by more than max_length_ratio",
    "held_out": "a side occurs in validation or test",
    "duplicate": "the pair occurred before",
    "validation": "drawn as validation set",
}

_PRIVATE = "\ue000-\uf8ff\U000f0000-\U0010ffff"
_BROKEN = "\ud800-\udfff\ufdd0-\ufdef\ufffd-\uffff"

_DAMAGE = re.compile(f"[{CONTROL}{_PRIVATE}{_BROKEN}]")

Pair = tuple[str, str]


def is_damaged(text: str) -> bool:
    """Whether a text has characters that occur in no sentence: traces of a wrong encoding or of binary data."""
    return _DAMAGE.search(text) is not None


def comparison_key(text: str) -> str:
    """The words of a sentence without case, blanks and punctuation, to compare sentences between splits.

    Combining marks belong to their words, because they are the vowels of Hindi and Thai; composed and decomposed
    letters are equal. A text without words is its own key.
    """
    return " ".join(words(text.casefold())) or text


class HeldOut:
    """The sentences that training must not see, compared without case, punctuation and tags.

    `sides` of pairs are 0 and 1, `tags` words that stand in front of sources.
    """

    def __init__(self, sides: Iterable[int] = (0, 1), tags: Iterable[str] = ()) -> None:
        self._keys: dict[int, set[str]] = {side: set() for side in sides}
        self._starts = tuple(f"{tag} " for tag in tags if tag)

    def add(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            for side, keys in self._keys.items():
                keys.add(self._key(pair[side]))

    def __contains__(self, pair: Pair) -> bool:
        """Whether a side of a pair is held out."""
        return any(self._key(pair[side]) in keys for side, keys in self._keys.items())

    def _key(self, text: str) -> str:
        return comparison_key(text.partition(" ")[2] if text.startswith(self._starts) else text)


class Cleaner:
    """Cleans a split pair by pair (lowercased first if `lowercase` is set) and counts what it did.

    Attributes:
        counts: pairs "read", those of them that were "repaired", pairs "kept", and pairs dropped for each of `REASONS`.
        several_sentences: pairs kept for training whose sources have several sentences of the language `language`; 0
            without one.
    """

    def __init__(self, lowercase: bool = False, language: str | None = None) -> None:
        self.counts: dict[str, int] = {"read": 0, "kept": 0, "repaired": 0}
        self.several_sentences = 0
        self._lowercase, self._language = lowercase, language

    def for_evaluation(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields every pair, repaired; nothing is dropped from validation and test sets."""
        for pair in pairs:
            repaired = self._repaired(pair)
            self.counts["kept"] += 1
            yield repaired

    def for_training(
        self,
        pairs: Iterable[Pair],
        max_length: int,
        held_out: HeldOut,
        *,
        cuts_sources: bool = False,
        keeps_identical: bool = False,
        keeps_repeated: bool = False,
    ) -> Iterator[Pair]:
        """Yields the pairs worth training on, judged by their text and the sentences in `held_out`.

        Only lines that cannot have at most `max_length` tokens (end symbol included) are dropped as too long here;
        `length_reason` judges the others once they are encoded. With `cuts_sources` sources may be of any length;
        `keeps_identical` is for labels, which may be words of the text; `keeps_repeated` keeps what occurred before.
        """
        self.counts.update(dict.fromkeys(REASONS, 0))
        seen: set[bytes] = set()
        for raw in pairs:
            pair = self._repaired(raw)
            if reason := _reason_to_drop(raw, pair, max_length * MAX_PIECE_CHARACTERS, cuts_sources):
                self.counts[reason] += 1
            elif pair[0] == pair[1] and not keeps_identical:
                self.counts["identical"] += 1
            elif pair in held_out:
                self.counts["held_out"] += 1
            elif (key := fingerprint(pair)) in seen and not keeps_repeated:
                self.counts["duplicate"] += 1
            else:
                seen.add(key)
                self.counts["kept"] += 1
                if self._language is not None:  # before it is lowercased
                    self.several_sentences += len(find_sentences(raw[0], self._language)) > 1
                yield pair

    def _repaired(self, pair: Pair) -> Pair:
        self.counts["read"] += 1
        self.counts["repaired"] += any(map(REPAIRABLE.search, pair))
        if self._lowercase:
            pair = (lowercased(pair[0]), lowercased(pair[1]))
        return repair(pair[0]), repair(pair[1])


def length_reason(source_length: int, target_length: int, max_length: int, max_length_ratio: float) -> str | None:
    """The reason to drop a training pair for its length in tokens, end symbols included; None to keep it."""
    shorter, longer = sorted((source_length, target_length))
    if longer > max_length:
        return "too_long"
    return "length_ratio" if longer > shorter * max_length_ratio else None


def _reason_to_drop(raw: Pair, pair: Pair, max_characters: int, cuts_sources: bool) -> str | None:
    """The reason to drop a repaired pair for its own text; `raw` is the pair before repair, which hides damage."""
    if any(map(is_damaged, raw)):
        return "invalid_characters"
    if not all(map(str.strip, pair)):
        return "empty"
    if len(pair[1] if cuts_sources else max(pair, key=len)) >= max_characters:
        return "too_long"
    return None


def fingerprint(pair: Pair) -> bytes:
    """A 64-bit hash of a pair, so that millions of pairs can be compared without holding their text."""
    return hashlib.blake2b("\n".join(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest()
