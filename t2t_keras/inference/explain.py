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
    """The weights of one kind of attention, with the tokens of their rows and columns.

    Attributes:
        weights: float32 [layers, heads, query_len, key_len]; each row sums to 1.
        queries: the token of each row; a target row has the token that it predicts.
        keys: the token of each column.
    """

    weights: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """Token log-probabilities and attention of one translation.

    Attributes:
        source_pieces: source tokens, ending with the end symbol.
        target_pieces: target tokens, ending with the end symbol unless the search reached its length limit first.
        token_log_probs: log-probability of each target token, given the tokens before it.
        attention: `Attentions` without the batch axis: float32 [layers, heads, query_len, key_len] each.
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    attention: Attentions

    @classmethod
    def of(
        cls, source_pieces: Sequence[str], target_pieces: Sequence[str], log_probs: np.ndarray, attention: Attentions
    ) -> "Explanation":
        """Makes the explanation of one translation from its row of a batch, without the padding.

        Args:
            source_pieces: source tokens.
            target_pieces: target tokens.
            log_probs: float32 [target_len], padded.
            attention: float32 [layers, heads, query_len, key_len] each, padded.
        """
        source_len, target_len = len(source_pieces), len(target_pieces)
        sizes = Attentions((source_len, source_len), (target_len, target_len), (target_len, source_len))
        # Copied, because a view would keep the whole batch in memory.
        copies = [kind[:, :, :rows, :columns].copy() for kind, (rows, columns) in zip(attention, sizes, strict=True)]
        token_log_probs = tuple(map(float, log_probs[:target_len]))
        return cls(tuple(source_pieces), tuple(target_pieces), token_log_probs, Attentions(*copies))

    def view(self, kind: Kind) -> View:
        """Returns one kind of attention with the tokens of its rows and columns.

        Row t of "decoder" and "cross" belongs to the position that predicts target token t. The columns of "decoder"
        are the decoder's inputs, beginning with the start symbol.

        Args:
            kind: "encoder" or "decoder" for self-attention, or "cross". A kind that the model does not have has 0
                layers.

        Raises:
            ValueError: the kind is unknown.
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
        """Links each target token to the source token to which it pays the most attention, averaged over heads.

        Args:
            layer: decoder layer, counted from 0, or from the end if negative. None means the second to last. In two
                English-German models of four layers, this layer's links agreed best with the links that IBM model 1
                finds in both directions, and it had the most weight near the diagonal.

        Returns:
            Pairs (source position, target position), counted from 0, without end symbols.

        Raises:
            ValueError: the layer does not exist.

        Reference: Garg et al., "Jointly Learning to Align and Translate with Transformer Models", 2019, which finds the
        same with six layers.
        """
        return _links(self._weights(layer))

    def word_alignment(self, layer: int | None = None) -> str:
        """Links each target word to the source word to which it pays the most attention.

        Words are separated by spaces in the repaired texts. Attention is summed over the tokens of a word.

        Args:
            layer: as for `alignment`.

        Returns:
            The links as SOURCE-TARGET, counted from 0, for example "0-0 2-1 1-2".

        Raises:
            ValueError: the layer does not exist.
        """
        return str(WordAlignment.of(self.source_pieces, self.target_pieces, self._weights(layer)))

    def _weights(self, layer: int | None) -> np.ndarray:
        """Returns a layer's attention averaged over heads: float32 [target_len, source_len], without end symbols."""
        attention = self.attention.cross
        num_layers = len(attention)
        layer = max(num_layers - 2, 0) if layer is None else layer
        if not -num_layers <= layer < num_layers:
            raise ValueError(f"layer must be in [{-num_layers}, {num_layers}), got {layer}")
        return _remove_padding(attention[layer].mean(axis=0), self.target_pieces, self.source_pieces)


@dataclasses.dataclass(frozen=True)
class WordAlignment:
    """Links each target word to a source word; `str()` gives the usual format, such as "0-0 2-1 1-2".

    Attributes:
        source_words: number of source words.
        target_words: number of target words.
        links: pairs (source word, target word), counted from 0, one per target word, in the target's order.
    """

    source_words: int
    target_words: int
    links: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, source_pieces: Sequence[str], target_pieces: Sequence[str], weights: np.ndarray) -> "WordAlignment":
        """Aligns words by their tokens' attention, float [target_len, source_len], possibly with padding at the end."""
        weights = _remove_padding(weights, target_pieces, source_pieces)
        counts = []
        for axis, pieces in enumerate((target_pieces, source_pieces)):
            starts = word_starts(pieces[: weights.shape[axis]])
            weights = np.add.reduceat(weights, starts, axis) if starts else weights  # --> [target_len, source_len]
            counts.append(len(starts))
        return cls(counts[1], counts[0], tuple(_links(weights)))

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)


def join_word_alignments(parts: Sequence[WordAlignment]) -> WordAlignment:
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


def _remove_padding(weights: np.ndarray, target_pieces: Sequence[str], source_pieces: Sequence[str]) -> np.ndarray:
    """Removes padding and end symbols from attention: float [target_len, source_len]."""
    target_len, source_len = (
        len(pieces) - (len(pieces) > 0 and pieces[-1] == END) for pieces in (target_pieces, source_pieces)
    )
    return weights[:target_len, :source_len]


def _links(weights: np.ndarray) -> list[tuple[int, int]]:
    """Links each row of attention, float [target_len, source_len], to its largest column, as pairs (source, target).

    There are no links if there is no source.
    """
    if not weights.shape[1]:
        return []
    return [(int(source), target) for target, source in enumerate(weights.argmax(1))]
