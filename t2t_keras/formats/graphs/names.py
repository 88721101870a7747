"""Names of the converted graphs' inputs and outputs; those of layers end with the layer's index."""

KEYS = "keys_"
VALUES = "values_"
MEMORY_KEYS = "memory_keys_"
MEMORY_VALUES = "memory_values_"


def of_layers(count: int, *names: str) -> list[str]:
    """The names for `count` layers."""
    return [f"{name}{index}" for index in range(count) for name in names]
