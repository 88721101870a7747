"""The subword tokenizer of tensor2tensor in a TensorFlow graph."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text

from t2t_keras.text.subwords import FIRST_ID, LAST_CHARACTER, UNKNOWN

# Runs of letters and digits or of other characters; a run of letters and digits; and the parts of an escaped token.
_PARTS = r"[\p{L}\p{N}]+|[^\p{L}\p{N}]+"
_ALPHANUMERIC = r"(?s)[\p{L}\p{N}].*"
_ESCAPES = r"\\u|\\\\|\\[0-9]+;|[^\\]+|\\"
_NUMBER = r"\\[0-9]+;"
_ANYTHING = "(?s).*"
_LONGEST_PART = 1 << 20  # bytes


class GraphSubwords(tf.Module):
    """Computes `Subwords.encode` and `Subwords.decode` with operations of TensorFlow and TensorFlow Text.

    Args:
        subwords: the subwords, in the order of their ids from `FIRST_ID` on.
        alphabet: the characters that need no escaping.
        name: name of the module. Several modules in a SavedModel need different names.
    """

    def __init__(self, subwords: Sequence[str], alphabet: Sequence[str], name: str | None = None) -> None:
        super().__init__(name=name)
        unique = list(dict.fromkeys(subwords))
        places = {subword: FIRST_ID + place for place, subword in reversed(list(enumerate(subwords)))}
        self._ids = _table(unique, [places[subword] for subword in unique], -1)
        self._alphabet = _table([c for c in alphabet if c != "\n"], [1] * (len(alphabet) - ("\n" in alphabet)), 0)
        self._subwords = [*[""] * FIRST_ID, *subwords]
        self._cutter = tensorflow_text.WordpieceTokenizer(
            self._ids,
            suffix_indicator="",
            max_bytes_per_word=_LONGEST_PART,
            unknown_token=None,
            token_out_type=tf.int64,
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes strings [batch] as token ids, int32 [batch, (tokens)]."""
        parts = tensorflow_text.regex_split(texts, _PARTS, keep_delim_regex_pattern=_ANYTHING)  # --> [batch, (parts)]
        lengths = parts.row_lengths()
        places = tf.ragged.range(lengths)
        is_at_an_end = (places == 0) | (places == tf.expand_dims(lengths, 1) - 1)
        parts = tf.ragged.boolean_mask(parts, (parts != " ") | is_at_an_end)
        tokens = self._cutter.tokenize(self._escape(parts.values))  # --> [all parts, (tokens)]
        nested = tf.RaggedTensor.from_row_splits(tokens, parts.row_splits)
        return tf.cast(nested.merge_dims(1, 2), tf.int32)  # --> [batch, (tokens)]

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes token ids, int32 [batch, (tokens)], to strings [batch]."""
        subwords = tf.ragged.map_flat_values(lambda values: tf.gather(tf.constant(self._subwords), values), ids)
        texts = tf.strings.reduce_join(subwords, axis=-1)  # --> [batch]
        parts = tf.strings.split(texts, "_")  # --> [batch, (parts)]
        parts = tf.ragged.boolean_mask(parts, parts != "")
        plain = parts.with_values(_unescape(parts.values))
        is_alphanumeric = tf.ragged.map_flat_values(tf.strings.regex_full_match, plain, _ALPHANUMERIC)
        follows_alphanumeric = tf.concat([tf.zeros_like(is_alphanumeric[:, :1]), is_alphanumeric[:, :-1]], axis=1)
        spaces = tf.ragged.map_flat_values(
            lambda is_between: tf.where(is_between, " ", ""),
            is_alphanumeric.with_values(is_alphanumeric.values & follows_alphanumeric.values),
        )
        return tf.strings.reduce_join(plain.with_values(spaces.values + plain.values), axis=-1)

    def _escape(self, parts: tf.Tensor) -> tf.Tensor:
        """Escapes parts of texts, string [parts]."""
        parts = tf.strings.regex_replace(parts, r"\\", r"\\\\")
        parts = tf.strings.regex_replace(parts, "_", r"\\u")
        characters = tf.strings.unicode_split(parts, "UTF-8")  # --> [parts, (characters)]
        numbers = tf.strings.unicode_decode(parts, "UTF-8")
        spellings = tf.where(
            self._alphabet.lookup(characters.values) > 0,
            characters.values,
            tf.strings.join(["\\", tf.strings.as_string(numbers.values), ";"]),
        )
        return tf.strings.reduce_join(characters.with_values(spellings), axis=-1) + "_"


def _table(keys: Sequence[str], values: Sequence[int], default: int) -> tf.lookup.StaticHashTable:
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, tf.int64))
    return tf.lookup.StaticHashTable(initializer, default)


def _unescape(parts: tf.Tensor) -> tf.Tensor:
    """Replaces the escapes in parts of texts, string [parts], with their characters."""
    pieces = tensorflow_text.regex_split(parts, _ESCAPES, keep_delim_regex_pattern=_ANYTHING)  # --> [parts, (pieces)]
    values = pieces.values
    is_number = tf.strings.regex_full_match(values, _NUMBER)
    digits = tf.where(is_number, tf.strings.regex_replace(values, r"[\\;]", ""), "0")
    # Longer numbers are not characters, and could overflow an int32.
    is_short = tf.strings.length(digits) <= 7
    numbers = tf.strings.to_number(tf.where(is_short, digits, "0"), tf.int32)
    is_character = is_short & (numbers <= LAST_CHARACTER)
    characters = tf.strings.unicode_encode(tf.where(is_character, numbers, 0)[:, tf.newaxis], "UTF-8")
    plain = tf.where(is_number, tf.where(is_character, characters, UNKNOWN), values)
    plain = tf.where(values == "\\u", "_", tf.where(values == "\\\\", "\\", plain))
    return tf.strings.reduce_join(pieces.with_values(plain), axis=-1)
