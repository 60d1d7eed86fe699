"""Measured: embeddings with a bundle. It stays, and answers requests: ``texts``, and the ``file`` of their vectors."""

import json
import sys
import time
from typing import Any

import numpy as np

import tapeline
from tools.benching.jobs._measure import serve_requests


def main(arguments: dict[str, Any]) -> None:
    """Loads a bundle, embeds a text, and answers.

    Args:
        arguments: ``bundle``: its directory.
    """
    began = time.perf_counter()
    with tapeline.load(arguments["bundle"]) as model:
        model.embed(["a"])
        ready = {"seconds": time.perf_counter() - began}

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            began, cpu_began = time.perf_counter(), time.process_time()
            vectors = model.embed(request["texts"])
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
            np.save(request["file"], np.asarray(vectors))
            return {"seconds": seconds, "cpu_seconds": cpu_seconds, "tokens": int(vectors.tokens.sum())}

        serve_requests(ready, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
