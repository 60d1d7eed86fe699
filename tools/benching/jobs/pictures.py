"""Measured: pictures with a bundle. It stays, and answers requests: ``pictures``, and the ``file`` of their states."""

import json
import sys
import time
from typing import Any

import numpy as np

import tapeline
from tools.benching.jobs._measure import serve_requests


def main(arguments: dict[str, Any]) -> None:
    """Loads a bundle and answers.

    Args:
        arguments: ``bundle``: its directory.
    """
    began = time.perf_counter()
    with tapeline.load(arguments["bundle"]) as model:

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            pictures = np.load(request["pictures"])
            began, cpu_began = time.perf_counter(), time.process_time()
            states = [model.run("forward", {"pixel_values": picture})["last_hidden_state"] for picture in pictures]
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
            np.save(request["file"], np.stack(states))
            return {"seconds": seconds, "cpu_seconds": cpu_seconds}

        serve_requests({"seconds": time.perf_counter() - began}, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
