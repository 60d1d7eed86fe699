"""Measured: writing a dump, payloads and figures."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from lang_core import as_dtype
from runtime.dump import DumpWriter, TensorLabel
from tools.benching.jobs._measure import Meter, serve


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Dumps tensors of standard normal numbers; ``seconds`` is until the manifest is in its place.

    Args:
        arguments: ``directory`` (new), ``dtype``, ``tensor_bytes`` of each, ``count`` of tensors, ``payload``: whether
            the elements are written too.
    """
    dtype = as_dtype(arguments["dtype"])
    size = arguments["tensor_bytes"] // dtype.itemsize
    array = np.random.default_rng(0).standard_normal(size, np.float32).astype(dtype.numpy)
    meter = Meter()
    with meter.measure(False) as cost:
        began = time.perf_counter()
        with DumpWriter(Path(arguments["directory"]), level=2, source={"context": "bench"}) as writer:
            for index in range(arguments["count"]):
                label = TensorLabel(step=0, entry_point="main", name=f"x{index}", direction="IN", when="before")
                writer.add(label, array, payload=arguments["payload"])
        seconds = time.perf_counter() - began
    return cost.as_json() | {
        "seconds": seconds,
        "bytes": array.nbytes * arguments["count"],
        "payload_bytes": writer.totals.payload_bytes,
    }


if __name__ == "__main__":
    serve(run)
