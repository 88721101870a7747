"""Special tokens, whose ids are the same in every vocabulary."""

PAD_ID = 0  # padding, and the decoder's start symbol
EOS_ID = 1  # end of sentence
UNK_ID = 2  # unknown piece

SPECIAL = ("<pad>", "</s>", "<unk>")  # vocabulary entries, indexed by id
