"""From parallel text to token ids on disk, and from there to batches."""
