"""The type of tensors in annotations."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of any backend; a docstring or a comment gives dtype and shape
