"""Where a translation comes from: what every target token attended to, and the word alignment read from it."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.inference.forced import target_log_probs
from t2t_keras.models.contract import SearchedModel, attention_views

_WORD_START = "▁"
_END = "</s>"  # as an entry of the vocabulary; text that looks like it is cut into others


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """One translation, token by token.

    Attributes:
        source_pieces: the source's tokens, the end symbol last.
        target_pieces: the translation's tokens, the end symbol last, unless a search was cut off before it.
        token_log_probs: the log-probability of each of them, given those before it.
        attention: float32 [layers, heads, target_len, source_len], which source tokens the decoder attended to
            while it predicted each target token; each row adds up to 1.
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    attention: np.ndarray

    @classmethod
    def of(
        cls, source_pieces: Sequence[str], target_pieces: Sequence[str], log_probs: np.ndarray, attention: np.ndarray
    ) -> "Explanation":
        """What a batch's padded row says of one translation.

        Args:
            source_pieces: end symbol included.
            target_pieces: end symbol included.
            log_probs: float32 [padded target_len].
            attention: float32 [layers, heads, padded target_len, padded source_len].
        """
        source_len, target_len = len(source_pieces), len(target_pieces)
        own = attention[:, :, :target_len, :source_len].copy()  # a view would keep the whole batch in memory
        return cls(tuple(source_pieces), tuple(target_pieces), tuple(map(float, log_probs[:target_len])), own)

    def alignment(self, layer: int | None = None) -> list[tuple[int, int]]:
        """For each target token the source token with the most attention, on average over the heads.

        Args:
            layer: which decoder layer's attention, counted from 0, or from the end when negative. None means the
                last but one: of two English-German models of four layers it agreed best with the links on which
                IBM model 1 agrees with itself in both directions, and had the most weight near the diagonal.

        Returns:
            Pairs (source position, target position), from 0, one a target token; end symbols take no part.

        Raises:
            ValueError: no such layer.

        Reference:
            Garg et al., "Jointly Learning to Align and Translate with Transformer Models", 2019, who found the
            same for six layers.
        """
        return _links(self._weights(layer))

    def word_alignment(self, layer: int | None = None) -> str:
        """For each target word the source word with the most attention, as the programs of the field write it.

        Words are what blanks separate in the texts, as they were given to the
        tokenizer. A source word has the attention of all its tokens, a target word
        that which its tokens have on average.

        Args:
            layer: as in `alignment`.

        Returns:
            Pairs SOURCE-TARGET, from 0, one a target word, in their order: "0-0 2-1 1-2".

        Raises:
            ValueError: no such layer.
        """
        return str(WordAlignment.of(self.source_pieces, self.target_pieces, self._weights(layer)))

    def _weights(self, layer: int | None) -> np.ndarray:
        """A layer's attention without the end symbols, the mean over its heads: [target tokens, source tokens]."""
        num_layers = len(self.attention)
        layer = max(num_layers - 2, 0) if layer is None else layer
        if not -num_layers <= layer < num_layers:
            raise ValueError(f"layer must be in [{-num_layers}, {num_layers}), got {layer}")
        return _inside(self.attention[layer].mean(axis=0), self.target_pieces, self.source_pieces)


@dataclasses.dataclass(frozen=True)
class WordAlignment:
    """Which source word each target word comes from; written as the programs of the field do, "0-0 2-1 1-2".

    Attributes:
        source_words: how many words the source has.
        target_words: how many the translation has.
        links: pairs (source word, target word), from 0, one a target word, in their order.
    """

    source_words: int
    target_words: int
    links: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, source_pieces: Sequence[str], target_pieces: Sequence[str], weights: np.ndarray) -> "WordAlignment":
        """What attention says.

        Args:
            source_pieces: the source's tokens.
            target_pieces: the translation's.
            weights: float [target_len, source_len], the attention of the tokens that count; padding and end symbols
                may follow.
        """
        weights = _inside(weights, target_pieces, source_pieces)
        counts = []
        for axis, pieces in enumerate((target_pieces, source_pieces)):
            starts = word_starts(pieces[: weights.shape[axis]])
            weights = np.add.reduceat(weights, starts, axis) if starts else weights  # --> [target_len, source_len]
            counts.append(len(starts))
        return cls(counts[1], counts[0], tuple(_links(weights)))

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)


def joined_word_alignment(parts: Sequence[WordAlignment]) -> WordAlignment:
    """The alignment of a line from those of the parts that it was translated in, in order."""
    source_words = target_words = 0
    links: list[tuple[int, int]] = []
    for part in parts:
        links += [(source + source_words, target + target_words) for source, target in part.links]
        source_words, target_words = source_words + part.source_words, target_words + part.target_words
    return WordAlignment(source_words, target_words, tuple(links))


def word_starts(pieces: Sequence[str]) -> list[int]:
    """The positions of the tokens that begin a word, of a sentence's tokens without the end symbol."""
    return [index for index, piece in enumerate(pieces) if index == 0 or piece.startswith(_WORD_START)]


def explanation_function(model: SearchedModel) -> Callable[[np.ndarray, np.ndarray], tuple[tf.Tensor, tf.Tensor]]:
    """A compiled function that gives each target token's log-probability, and the attention.

    Args:
        model: what predicts; offers its attention.

    Returns:
        A function of source ids, int32 [batch, source_len], and target ids, int32 [batch, target_len], both padded
        with 0, that gives float32 [batch, target_len], as `token_log_probs_function` does, and float32
        [batch, layers, heads, target_len, source_len].
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def explained(source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, attention = attention_views(model).logits_and_cross_attention({"source": source, "target": target})
        return target_log_probs(logits, target), attention

    return explained


def alignment_function(model: SearchedModel) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """`Transformer.alignment_attention` of source ids and target ids, both int32 and padded with 0, compiled."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def attention(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return attention_views(model).alignment_attention({"source": source, "target": target})

    return attention


def _inside(weights: np.ndarray, target_pieces: Sequence[str], source_pieces: Sequence[str]) -> np.ndarray:
    """Attention without padding and end symbols: float [target tokens, source tokens]."""
    target_len, source_len = (len(pieces) - (pieces[-1:] == (_END,)) for pieces in (target_pieces, source_pieces))
    return weights[:target_len, :source_len]


def _links(weights: np.ndarray) -> list[tuple[int, int]]:
    """(source, target) for each target, from float [target_len, source_len]; none where there is no source."""
    if not weights.shape[1]:
        return []
    return [(int(source), target) for target, source in enumerate(weights.argmax(1))]
