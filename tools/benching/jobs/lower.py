"""Measured: lowering entry points of a Llama with abstract weights, from its config to the text in a file."""

import hashlib
import time
from typing import Any

from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters
from tools.benching.jobs._measure import Meter, memory_now, serve
from transformer_core.models import DecoderConfig, DecoderLM, entry_points


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lowers once, measured; where memory is not watched, a second time for the time alone.

    Args:
        arguments: ``config`` as in config.json, ``entry_points``, ``sequence``, ``max_sequence``, ``streaming``,
            ``form`` (external, arguments), ``block_functions``, ``text`` (the file to write), ``watch``.
    """
    meter = Meter()
    with meter.measure(arguments["watch"]) as cost:
        config = DecoderConfig.from_hf(arguments["config"])
        points = entry_points(
            DecoderLM(config),
            names=arguments["entry_points"],
            sequence=arguments["sequence"],
            max_sequence=arguments["max_sequence"],
        )
        model_bytes = memory_now().anonymous - meter.base.anonymous
        lowered = _lower(points, arguments)
    result = cost.as_json() | {"model_bytes": model_bytes}
    if not arguments["watch"]:
        began = time.perf_counter()
        _lower(points, arguments)
        result["seconds_again"] = time.perf_counter() - began
    with open(arguments["text"], "rb") as file:
        result["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
        result["text_bytes"] = file.tell()
    return result | {"nodes": sum(function.nodes_recorded for function in lowered.functions)}


def _lower(points: Any, arguments: dict[str, Any]) -> LoweredModule:
    form = ArgumentParameters() if arguments["form"] == "arguments" else ExternalParameters()
    with open(arguments["text"], "w") as text:
        streaming, functions = arguments["streaming"], arguments["block_functions"]
        return lower_module(points, text.write, form, streaming=streaming, block_functions=functions)


if __name__ == "__main__":
    serve(run)
