"""A run's directory: configuration, checkpoints, averages, records."""
