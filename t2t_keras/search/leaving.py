"""The rule for when sentences that are done leave a search, shared by all loops."""

from typing import Any


def is_time_to_leave(num_done: Any, num_open: Any) -> Any:
    """Whether at least a quarter of the open sentences is done: leaving copies the whole state, so it must pay off."""
    return 4 * num_done >= num_open
