"""What source and target mean: how examples are read, and how outputs are finished and scored."""
