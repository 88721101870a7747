"""The type alias that annotations use for tensors."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of any backend; dtype and shape are in a docstring or a comment
