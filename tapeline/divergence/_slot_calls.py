"""Example calls of entry points that work on some rows of caches."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lang_core import TensorSpec
from transformer_core import ADAPTER_TABLES

Arrays = dict[str, np.ndarray]
"""Arrays by the name of an argument or a result."""
_EMBEDDINGS: Final = "embeddings"


def works_on_rows(arguments: Mapping[str, object]) -> bool:
    """Returns whether an entry point takes rows of caches."""
    return bool({"row", "pages", "source"} & arguments.keys())


def slot_inputs(arguments: Mapping[str, TensorSpec], vocabulary: int, state: Mapping[str, np.ndarray]) -> Arrays:
    """Returns distinct rows, the last of several at rest; varied tokens, with padding; varied embeddings; caches.

    Args:
        arguments: specs by name.
        vocabulary: V.
        state: results of earlier calls and of ``slot_state``; missing caches are zeros.
    """
    caches = {name: spec for name, spec in arguments.items() if name.endswith(("_cache", "_state"))}
    filled = [int(state.get(_filled(row), 0)) for row in range(next(iter(caches.values())).shape[0])]
    if "source" in arguments:
        chosen: dict[str, Any] = {"source": np.argmax(filled), "target": np.argmin(filled)}
    elif "token_ids" in arguments:
        chosen = _tokens(arguments, vocabulary, filled)
    else:
        chosen = {"row": np.argmax(filled)}
    if "pages" in arguments:
        chosen["pages"] = _tables(chosen.pop("row"), arguments["pages"].shape[1], len(filled) - 1)
    if _EMBEDDINGS in arguments:
        spec = arguments[_EMBEDDINGS]
        chosen[_EMBEDDINGS] = np.sin(np.arange(spec.size) * 0.37).reshape(spec.shape)
    chosen |= _adapters(arguments)
    inputs = {name: np.asarray(chosen[name], spec.dtype.numpy) for name, spec in arguments.items() if name in chosen}
    return inputs | {name: state.get(name, np.zeros(spec.shape, spec.dtype.numpy)) for name, spec in caches.items()}


def slot_state(inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Returns how many positions of the rows of a call are filled after it, for the next call."""
    if "position" not in inputs:
        return {}
    count = inputs["count"] if "count" in inputs else inputs["last"] + 1
    rows = inputs["pages"][:, 0] if "pages" in inputs else inputs["row"]
    ends = zip(np.atleast_1d(rows), np.atleast_1d(inputs["position"] + count), strict=True)
    return {_filled(row): np.asarray(end) for row, end in ends}


def _tokens(arguments: Mapping[str, TensorSpec], vocabulary: int, filled: list[int]) -> Arrays:
    """Returns token ids, rows, positions, and the row of the last token or the counts."""
    (batch, tokens), rows = arguments["token_ids"].shape, len(filled)
    capacity = max((spec.shape[2] for name, spec in arguments.items() if name.endswith("_cache")), default=2**30)
    if "pages" in arguments:  # the last one is nobody's, and if several sequences write, each stays in its first
        rows, capacity = rows - 1, capacity * (arguments["pages"].shape[1] if batch == 1 else 1)
    chosen = rows - 1 - np.arange(batch) if arguments["position"].ndim else np.argmin(filled[:rows])
    begin = np.minimum(np.array(filled)[chosen], capacity - tokens)
    ids = np.arange(batch * tokens, dtype=np.int64) * 7919 + 11 * (int(begin.max()) + 1)
    inputs = {"token_ids": (ids % vocabulary).reshape(batch, tokens), "row": chosen, "position": begin}
    if "last" in arguments:
        return inputs | {"last": np.asarray(max(tokens - 2, 0))}
    return inputs | {"count": (np.arange(batch) < max(batch - 1, 1)).astype(np.int32)}


def _adapters(arguments: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """Returns tables of small numbers for the adapters of the sequences."""
    tables = [(name, spec) for name, spec in arguments.items() if name.startswith(ADAPTER_TABLES)]
    return {
        name: np.cos(np.arange(spec.size) * 0.61 + number).reshape(spec.shape) * spec.shape[-1] ** -0.5
        for number, (name, spec) in enumerate(tables)
    }


def _tables(rows: Any, pages: int, most: int) -> np.ndarray:
    """Returns a table of pages [B, M] for sequences that begin in some pages, of the first ``most``."""
    return (np.atleast_1d(rows)[:, None] + np.arange(pages)) % most


def _filled(row: int) -> str:
    return f"filled.{row}"
