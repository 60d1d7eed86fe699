"""Measured: a bundle's prefill and decode on the CPU, token by token, as tools:generate runs them."""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from compile_hlo.bundle import Bundle
from tools.benching.jobs._measure import Meter, serve
from tools.running import BundleModel
from transformer_core.generation import run_prompt

_DEVICE = "local-task"


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Runs a prompt and steps after it; each step takes the likeliest token, as greedy generation does.

    Args:
        arguments: ``bundle``, ``prompt`` (tokens), ``steps``.
    """
    bundle, prompt = Bundle(Path(arguments["bundle"])), arguments["prompt"]
    meter = Meter()
    with meter.measure(False) as cost, bundle.session(_DEVICE) as session:
        model = BundleModel(bundle, session)
        ids = [token % bundle.config.model["vocabulary"] for token in range(prompt)]
        began = time.perf_counter()
        logits = run_prompt(model, ids)
        prefill = time.perf_counter() - began
        seconds = []
        for position in range(prompt, prompt + arguments["steps"]):
            began = time.perf_counter()
            logits = model.decode(int(logits.argmax()), position)
            seconds.append(time.perf_counter() - began)
    return cost.as_json() | {
        "prompt_tokens_per_second": prompt / prefill,
        "tokens_per_second": 1 / statistics.median(seconds),
        "best_tokens_per_second": 1 / min(seconds),
        "finite": bool(np.isfinite(logits).all()),
    }


if __name__ == "__main__":
    serve(run)
