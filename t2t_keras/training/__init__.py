"""Training: the devices, the step, the loop and its records."""
