"""Token ids that mean the same in every vocabulary."""

PAD_ID = 0  # padding, and what a decoder starts from
EOS_ID = 1  # the end of a sentence
UNK_ID = 2  # what a vocabulary cannot spell
