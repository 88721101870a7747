"""When sentences that are done leave a search: one rule for every loop."""

from typing import Any


def is_time_to_leave(num_done: Any, num_open: Any) -> Any:
    """Whether a quarter of the sentences is done; leaving copies all that is kept, so it has to pay.

    Args:
        num_done: of the sentences that the search still works on, those that are done; an integer or a scalar tensor.
        num_open: all of these; likewise.
    """
    return 4 * num_done >= num_open
