"""Explanations of translations: the attention behind each token, and the word alignment derived from it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.inference.forced import compiled_on_pairs, target_log_probs
from t2t_keras.models.contract import Attentions, SearchedModel, attention_views
from t2t_keras.text.pieces import END, START, word_starts

Kind = Literal["encoder", "decoder", "cross"]  # the fields of `Attentions`


class View(NamedTuple):
    """One kind of attention with its tokens.

    Attributes:
        weights: float32 [layers, heads, queries, keys]; each row adds up to 1.
        queries: the token of each row; in the target, the one that is predicted there.
        keys: the token of each column.
    """

    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """One translation, token by token.

    Attributes:
        source_pieces: source tokens, the end symbol last.
        target_pieces: target tokens, the end symbol last, unless a search was cut off before it.
        token_log_probs: log-probability of each target token, given those before it.
        attention: `Attentions` of this translation alone: float32 [layers, heads, query_len, key_len].
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    attention: Attentions

    @classmethod
    def of(
        cls, source_pieces: Sequence[str], target_pieces: Sequence[str], log_probs: np.ndarray, attention: Attentions
    ) -> "Explanation":
        """Cuts one translation out of a batch: removes the padding of log_probs, float32 [target_len], and
        attention.
        """
        source_len, target_len = len(source_pieces), len(target_pieces)
        sizes = Attentions((source_len, source_len), (target_len, target_len), (target_len, source_len))
        # Copied, because a view would keep the whole batch in memory.
        cut = [kind[:, :, :rows, :columns].copy() for kind, (rows, columns) in zip(attention, sizes, strict=True)]
        token_log_probs = tuple(map(float, log_probs[:target_len]))
        return cls(tuple(source_pieces), tuple(target_pieces), token_log_probs, Attentions(*cut))

    def view(self, kind: Kind) -> View:
        """One kind of attention with the tokens of its rows and columns; "encoder" and "decoder" are self-attention.

        Row t of "decoder" and "cross" is of the pass that predicts target token t; the decoder's columns are what it
        has read by then, the start symbol first. A kind that the model does not have has 0 layers.

        Raises:
            ValueError: no such kind.
        """
        if kind not in Attentions._fields:
            raise ValueError(f"kind must be one of {', '.join(Attentions._fields)}; got {kind!r}")
        inputs = (START, *self.target_pieces[:-1])
        tokens = Attentions(
            encoder=(self.source_pieces, self.source_pieces),
            decoder=(self.target_pieces, inputs),
            cross=(self.target_pieces, self.source_pieces),
        )
        return View(getattr(self.attention, kind), *getattr(tokens, kind))

    def alignment(self, layer: int | None = None) -> list[tuple[int, int]]:
        """Pairs each target token with the source token that has the most attention, averaged over heads.

        Args:
            layer: decoder layer, counted from 0, or from the end if negative. None means the last but one: in two
                English-German models of four layers its links agreed best with those on which IBM model 1 agrees in
                both directions, and it had the most weight near the diagonal.

        Returns:
            Pairs (source position, target position), from 0, without end symbols.

        Raises:
            ValueError: no such layer.

        Reference: Garg et al., "Jointly Learning to Align and Translate with Transformer Models", 2019; same result,
        six layers.
        """
        return _links(self._weights(layer))

    def word_alignment(self, layer: int | None = None) -> str:
        """Pairs each target word with the source word that has the most attention: "0-0 2-1 1-2", SOURCE-TARGET from 0.

        Words are separated by blanks in the texts that the tokenizer got; attention is summed over a source word's
        tokens and averaged over a target word's. `layer` and errors are as for `alignment`.
        """
        return str(WordAlignment.of(self.source_pieces, self.target_pieces, self._weights(layer)))

    def _weights(self, layer: int | None) -> np.ndarray:
        """A layer's attention averaged over heads, without end symbols: [target tokens, source tokens]."""
        attention = self.attention.cross
        num_layers = len(attention)
        layer = max(num_layers - 2, 0) if layer is None else layer
        if not -num_layers <= layer < num_layers:
            raise ValueError(f"layer must be in [{-num_layers}, {num_layers}), got {layer}")
        return _inside(attention[layer].mean(axis=0), self.target_pieces, self.source_pieces)


@dataclasses.dataclass(frozen=True)
class WordAlignment:
    """The source word of each target word; as a string "0-0 2-1 1-2", the usual format.

    Attributes:
        source_words: number of source words.
        target_words: number of target words.
        links: pairs (source word, target word), from 0, one per target word, in order.
    """

    source_words: int
    target_words: int
    links: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, source_pieces: Sequence[str], target_pieces: Sequence[str], weights: np.ndarray) -> "WordAlignment":
        """The alignment by tokens' attention, float [target_len, source_len]; padding and end symbols may follow."""
        weights = _inside(weights, target_pieces, source_pieces)
        counts = []
        for axis, pieces in enumerate((target_pieces, source_pieces)):
            starts = word_starts(pieces[: weights.shape[axis]])
            weights = np.add.reduceat(weights, starts, axis) if starts else weights  # --> [target_len, source_len]
            counts.append(len(starts))
        return cls(counts[1], counts[0], tuple(_links(weights)))

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)


def token_links(
    source_pieces: Sequence[str], target_pieces: Sequence[str], weights: np.ndarray
) -> list[tuple[int, int]]:
    """Pairs (source, target), one per target token, by attention [target_len, source_len], without end symbols."""
    return _links(_inside(weights, target_pieces, source_pieces))


def joined_word_alignment(parts: Sequence[WordAlignment]) -> WordAlignment:
    """Joins the alignments of a line's parts, in order."""
    source_words = target_words = 0
    links: list[tuple[int, int]] = []
    for part in parts:
        links += [(source + source_words, target + target_words) for source, target in part.links]
        source_words, target_words = source_words + part.source_words, target_words + part.target_words
    return WordAlignment(source_words, target_words, tuple(links))


def explanation_function(model: SearchedModel) -> Callable[[np.ndarray, np.ndarray], tuple[tf.Tensor, Attentions]]:
    """Compiles a function of source and target ids that returns `target_log_probs` and the attention."""

    def explained(source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, Attentions]:
        logits, attention = attention_views(model).logits_and_attention({"source": source, "target": target})
        return target_log_probs(logits, target), attention

    return compiled_on_pairs(explained)


def alignment_function(model: SearchedModel) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """Compiles `AttentionViews.alignment_attention` for source and target ids."""
    return compiled_on_pairs(
        lambda source, target: attention_views(model).alignment_attention({"source": source, "target": target})
    )


def _inside(weights: np.ndarray, target_pieces: Sequence[str], source_pieces: Sequence[str]) -> np.ndarray:
    """Attention without padding and end symbols: float [target tokens, source tokens]."""
    target_len, source_len = (len(pieces) - (pieces[-1:] == (END,)) for pieces in (target_pieces, source_pieces))
    return weights[:target_len, :source_len]


def _links(weights: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (source, target), one per target, from float [target_len, source_len]; none if there is no source."""
    if not weights.shape[1]:
        return []
    return [(int(source), target) for target, source in enumerate(weights.argmax(1))]
