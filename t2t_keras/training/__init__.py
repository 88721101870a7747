"""Training: the strategy, the step, the loop, and what it leaves on disk."""
