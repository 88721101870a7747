"""The directory of a run: configuration, checkpoints, averages and records."""
