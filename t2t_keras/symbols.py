"""Token ids that mean the same in every vocabulary."""

PAD_ID = 0  # padding, and the start symbol of a decoder
EOS_ID = 1  # the end of a sentence
UNK_ID = 2  # a piece that the vocabulary lacks

SPECIAL = ("<pad>", "</s>", "<unk>")  # their entries in every vocabulary, by id
