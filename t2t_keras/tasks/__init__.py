"""Tasks: how examples are read, what a model learns to write, and how outputs are post-processed and scored."""
