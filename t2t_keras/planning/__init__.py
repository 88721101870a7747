"""The size and cost of a model and its training, computed from the configuration only."""
