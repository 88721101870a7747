"""Names of the converted graphs' inputs and outputs; of a layer's, its number follows."""

KEYS = "keys_"
VALUES = "values_"
MEMORY_KEYS = "memory_keys_"
MEMORY_VALUES = "memory_values_"


def of_layers(count: int, *names: str) -> list[str]:
    """Names of that many layers."""
    return [f"{name}{index}" for index in range(count) for name in names]
