"""Training: devices, the training step, the training loop and its records."""
