"""Sources of parallel text."""
