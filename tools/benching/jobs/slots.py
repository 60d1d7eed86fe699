"""Measured: steps through the slots of a bundle, whose rows lie whole or in pages. It stays, and answers requests.

A request says what to ``do``:

- ``fill`` (``start``, ``stop``, ``seed``): puts drawn entries into these positions of every row;
- ``steps`` (``rows``, ``position``, ``ids``): decodes these tokens, one after the other, in so many rows at once.
"""

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots, Invariance
from tapeline.running import let_workers_run
from tools.benching.jobs._measure import memory_now, serve_requests

_PIECE: Final = 32
"""Positions that a row gets at a time, so that the pages of rows lie between each other's as a server's do."""


class _Served:
    """Answers requests for the slots of one bundle."""

    def __init__(self, slots: BundleSlots) -> None:
        self._slots: Final = slots

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request."""
        match request.pop("do"):
            case "fill":
                return self._fill(**request)
            case "steps":
                return self._steps(**request)
            case other:
                raise KeyError(other)

    def _fill(self, start: int, stop: int, seed: int) -> dict[str, Any]:
        random, began = np.random.default_rng(seed), time.perf_counter()
        for at in range(start, stop, _PIECE):
            count = min(_PIECE, stop - at)
            pieces = [self._drawn(random, count) for _ in range(self._slots.slots)]
            for row in random.permutation(self._slots.slots).tolist():
                self._slots.write_row(row, at, pieces[row])
        return {"seconds": time.perf_counter() - began, "rss_bytes": memory_now().rss}

    def _drawn(self, random: np.random.Generator, count: int) -> list[np.ndarray]:
        """Returns entries of every cache, [K, count, H]: numbers as a model's keys and values have them."""
        shapes = [(spec.shape[1], count, spec.shape[3], spec.dtype.numpy) for spec in self._slots.cache_specs.values()]
        return [random.standard_normal(shape, np.float32).astype(dtype) for *shape, dtype in shapes]

    def _steps(self, rows: int, position: int, ids: list[int]) -> dict[str, Any]:
        seconds, hashed, finite = list[float](), hashlib.sha256(), True
        for place, token_id in enumerate(ids, position):
            tokens = [token_id + row for row in range(rows)]
            began = time.perf_counter()
            predictions = self._slots.decode(range(rows), tokens, [place] * rows)
            for prediction in predictions:
                prediction.likeliest()
            seconds.append(time.perf_counter() - began)
            for prediction in predictions:
                logits = prediction.logits()
                hashed.update(logits.tobytes())
                finite = finite and bool(np.isfinite(logits).all())
        return {"seconds": seconds, "logits": hashed.hexdigest(), "finite": finite}


def main(arguments: dict[str, Any]) -> None:
    """Opens a bundle and answers.

    Args:
        arguments: ``bundle``: its directory, exported with slots.
    """
    bundle = Bundle(Path(arguments["bundle"]))
    with open_session(bundle, Place()) as session:
        # So few rows are a call of their own size, as a verified bundle's are whose bits are known to allow it.
        slots = BundleSlots(bundle, session, invariance=Invariance.CALLS)
        let_workers_run()
        serve_requests({"rss_bytes": memory_now().rss}, _Served(slots).answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
