"""Measured: tuned configurations against the heuristic's, compiled by IREE."""

import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from autotune import ConfigSelectorChain, Executor, Kernel, PersistentCache, Tuner
from autotune.iree_compiler import IreeCompiler
from autotune.supplied import AttentionKernel, LinearKernel, pack_weight
from tools.benching.jobs._measure import serve
from tools.benching.jobs._turns import in_turns

_MICRO: Final = 1e6

Call = tuple[Kernel[Any, Any], tuple[Any, ...], dict[str, Any]]


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Tunes a call, or measures what an earlier process found for it.

    Args:
        arguments: ``case`` (see ``call_of``); ``cache``, the file of tuned configurations; ``device``; and either
            ``tune``, the tuner's rounds, or ``repeats`` and ``sample_s`` of ``in_turns``.

    Returns:
        Of a tuning: ``candidates`` that computed the right thing, ``cfg``, ``seconds``. Of a measurement:
        ``tuned_us``, ``heuristic_us``, medians by the clock; ``gain``, the median of heuristic over tuned, turn by
        turn; ``itself``, the same of the heuristic's configuration compiled once more, which shows the noise;
        ``tier``, where the configuration is from; ``apart``, the largest difference over the largest value.
    """
    kernel, args, kwargs = call_of(arguments["case"])
    compiler = IreeCompiler(arguments["device"])
    cache: PersistentCache[Any] = PersistentCache(path=Path(arguments["cache"]))
    if "tune" in arguments:
        tuner: Tuner[Any] = Tuner(rounds=arguments["tune"])
        chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(policy="autotune", persistent=cache, tuner=tuner)
        began = time.perf_counter()
        compiled = Executor(chain, compiler=compiler).compile(kernel, *args, **kwargs)
        seconds = time.perf_counter() - began
        (entry,) = chain.cache.entries()
        good = sum(measurement.status == "ok" for measurement in entry.measurements)
        return {"candidates": good, "cfg": _short(compiled.cfg), "seconds": seconds}
    events: list[str] = []
    remembered: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
        policy="cached-only", persistent=cache, on_event=lambda event, **data: events.append(data.get("level", event))
    )
    tuned = Executor(remembered, compiler=compiler).compile(kernel, *args, **kwargs)
    guessing: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(policy="heuristics")
    heuristic, again = (Executor(guessing, compiler=compiler).compile(kernel, *args, **kwargs) for _ in range(2))
    calls = {
        "tuned": lambda: tuned(*args, **kwargs),
        "heuristic": lambda: heuristic(*args, **kwargs),
        "again": lambda: again(*args, **kwargs),
    }
    ours, theirs = np.asarray(calls["tuned"]()), np.asarray(calls["heuristic"]())
    times = in_turns(calls, arguments["repeats"], arguments["sample_s"])
    gains, itself = (
        [other / mine for other, mine in zip(times["heuristic"], times[name], strict=True)]
        for name in ("tuned", "again")
    )
    return {
        "tuned_us": statistics.median(times["tuned"]) * _MICRO,
        "heuristic_us": statistics.median(times["heuristic"]) * _MICRO,
        "gain": statistics.median(gains),
        "itself": statistics.median(itself),
        "tier": events[-1],
        "apart": float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
    }


def call_of(case: dict[str, Any]) -> Call:
    """A kernel and arguments with data.

    Args:
        case: ``kernel``: ``attention`` with ``heads``, ``shared`` (of them), ``queries``, ``keys``, ``size`` of a head;
            or ``linear`` with ``rows``, ``inputs``, ``outputs``, and the weight's ``layout`` if not the usual one.
    """
    random = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape).astype(np.float32)

    if case["kernel"] == "attention":
        q = normal(1, case["heads"], case["queries"], case["size"])
        k, v = (normal(1, case["shared"], case["keys"], case["size"]) for _ in range(2))
        return AttentionKernel(), (q, k, v), {"causal": True}
    layout = case.get("layout", "output_major")
    weight = pack_weight(normal(case["outputs"], case["inputs"]), layout)
    return LinearKernel(), (normal(case["rows"], case["inputs"]), weight), {"layout": layout}


def _short(cfg: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in vars(cfg).items() if value)


if __name__ == "__main__":
    serve(run)
