"""Measured: how fast the machine reads memory, with a thread per core; the limit of every decode."""

import os
import threading
import time
from typing import Any

import numpy as np

from tools.benching.jobs._measure import serve


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Reads an array that no cache holds; the largest element is what costs least to look for.

    Args:
        arguments: ``bytes`` of the array, ``repeats``.
    """
    parts = np.array_split(np.ones(arguments["bytes"] // 4, np.float32), os.cpu_count() or 1)
    seconds = [_read(parts) for _ in range(arguments["repeats"])]
    return {"bytes_per_second": sum(part.nbytes for part in parts) / min(seconds)}


def _read(parts: list[np.ndarray]) -> float:
    threads = [threading.Thread(target=np.max, args=(part,)) for part in parts]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(run)
