"""ConvS2S: Gehring et al., "Convolutional Sequence to Sequence Learning", 2017."""
