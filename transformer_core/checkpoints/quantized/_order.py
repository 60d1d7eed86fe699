"""Groups of columns that do not follow each other: GPTQ's order of activations."""

from typing import Any

import numpy as np

from transformer_core.checkpoints.quantized._stored import Part


def group_order(part: Part, groups: int, size: int) -> np.ndarray[Any, Any] | None:
    """Returns the number of the group of each column, i64 [K]; None where groups of ``size`` follow each other.

    Raises:
        CheckpointError: a number is not that of a group.
    """
    order = part.read().astype(np.int64)
    if order.min(initial=0) < 0 or order.max(initial=0) >= groups:
        part.refuse(f"has numbers {order.min()} to {order.max()}, expected those of {groups} groups from 0 on")
    return None if np.array_equal(order, np.arange(len(order)) // size) else order
