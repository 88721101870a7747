"""Text processing: sentences, words, markup, and the conversion to token ids and back."""
