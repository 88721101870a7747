"""ByteNet: Kalchbrenner et al., "Neural Machine Translation in Linear Time", 2016."""
