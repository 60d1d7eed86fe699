"""Measured: writing a parameter archive from a checkpoint."""

import os
import time
from typing import Any

from lang_core import TensorSpec
from run_iree.archive import ArchiveEntry, write_archive
from tools.benching.jobs._measure import Meter, serve
from transformer_core.checkpoints import SafetensorsCheckpoint


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes the archive; ``seconds`` is until the file is complete, ``hashed_seconds`` until its hash is known too.

    Args:
        arguments: ``checkpoint`` (a directory), ``output`` (a file), ``dtype`` to convert to, ``watch``.
    """
    meter = Meter()
    hashed_seconds = 0.0
    with meter.measure(arguments["watch"]) as cost, SafetensorsCheckpoint(arguments["checkpoint"]) as checkpoint:
        began = time.perf_counter()
        entries = [
            ArchiveEntry(key, key, TensorSpec(checkpoint.spec(key).shape, arguments["dtype"]))
            for key in list(checkpoint.keys())
        ]
        written = write_archive(arguments["output"], entries, checkpoint)
        seconds = time.perf_counter() - began
        sha256 = written.sha256
        hashed_seconds = time.perf_counter() - began
    return cost.as_json() | {
        "seconds": seconds,
        "hashed_seconds": hashed_seconds,
        "sha256": sha256,
        "file_bytes": os.path.getsize(arguments["output"]),
    }


if __name__ == "__main__":
    serve(run)
