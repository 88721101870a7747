"""Names of the graphs' inputs and outputs; those of layers end with the layer's index."""

KEYS = "keys_"
VALUES = "values_"
MEMORY_KEYS = "memory_keys_"
MEMORY_VALUES = "memory_values_"
