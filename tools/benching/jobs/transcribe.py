"""Measured: transcriptions with a bundle. It stays, and answers requests: ``file``, the path of a WAV file."""

import json
import sys
import time
from typing import Any

import tapeline
from tools.benching.jobs._measure import serve_requests


def main(arguments: dict[str, Any]) -> None:
    """Loads a bundle and answers.

    Args:
        arguments: ``bundle``: its directory; ``language``.
    """
    began = time.perf_counter()
    with tapeline.load(arguments["bundle"]) as model:

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            began, cpu_began = time.perf_counter(), time.process_time()
            text = model.transcribe(request["file"], language=arguments["language"]).text
            return {
                "seconds": time.perf_counter() - began,
                "cpu_seconds": time.process_time() - cpu_began,
                "text": text,
            }

        serve_requests({"seconds": time.perf_counter() - began}, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
