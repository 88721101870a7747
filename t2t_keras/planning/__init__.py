"""The cost of a model and its training, from the configuration alone."""
