"""What a side's results should be."""

from collections.abc import Mapping

import numpy as np

from transformer_core.generation import NEXT_IDS, likeliest_ids

_LOGITS = "logits"


def wanted(name: str, found: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a result should be: what the reference says, but for the likeliest tokens.

    Which of two nearly equal logits is the larger is rounding's choice. So logits are compared, and the tokens should
    be those that the same side's own logits say, exactly.

    >>> found = {"logits": np.array([[1.0, 1.01]], np.float32), "next_ids": np.array([1], np.int32)}
    >>> wanted("next_ids", found, {"next_ids": np.array([0], np.int32)}).tolist()
    [1]
    """
    return likeliest_ids(found[_LOGITS]) if name == NEXT_IDS and _LOGITS in found else reference[name]
