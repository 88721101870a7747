"""What a model and its training cost, from the configuration alone."""
