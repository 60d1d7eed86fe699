"""Measured: generation by a bundle in the process itself, token by token. It stays, and answers requests.

A request has ``ids`` and ``tokens``: the prompt, and how many tokens are generated.
"""

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import tapeline
from tapeline.running import let_workers_run
from tools.benching.jobs._measure import serve_requests

_DEVICE: Final = "local-task"


def main(arguments: dict[str, Any]) -> None:
    """Opens a bundle and answers with the seconds between tokens.

    Args:
        arguments: ``weights``: the bundle's directory.
    """
    with tapeline.load(Path(arguments["weights"]), device=_DEVICE) as model:
        let_workers_run()

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            times: list[float] = []
            options: dict[str, Any] = {"max_new_tokens": request["tokens"], "ignore_eos": True, "temperature": 0.0}
            for _ in model.stream(token_ids=request["ids"], **options):
                times.append(time.perf_counter())
            return {"gap_seconds": [after - before for before, after in itertools.pairwise(times)]}

        serve_requests({}, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
