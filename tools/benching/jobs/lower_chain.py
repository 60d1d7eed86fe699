"""Measured: lowering a chain of ops, flat, in one block, or in blocks no two of which are equal."""

import hashlib
from contextlib import nullcontext
from typing import Any, Final

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, TensorSpec
from tools.benching.jobs._measure import Meter, serve

_SPEC: Final = TensorSpec((2, 3), "f32")
_ROUND: Final = 4  # nodes: a literal and three ops
_BLOCK: Final = 80


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lowers once, measured.

    Args:
        arguments: ``nodes``; ``blocks`` (none, one, unlike); ``streaming``; ``text`` (the file to write); ``watch``.
    """
    point = _chain(arguments["nodes"], arguments["blocks"])
    lower_module([_chain(_BLOCK, "none")], lambda text: None, ExternalParameters(), streaming=True)
    meter = Meter()
    with meter.measure(arguments["watch"]) as cost, open(arguments["text"], "w") as text:
        lowered = lower_module([point], text.write, ExternalParameters(), streaming=arguments["streaming"])
    with open(arguments["text"], "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    (function,) = lowered.functions
    return cost.as_json() | {
        "sha256": digest,
        "text_bytes": size,
        "nodes": function.nodes_recorded,
        "largest": function.largest_stretch.nodes,
    }


def _chain(nodes: int, blocks: str) -> EntryPoint:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        size = _BLOCK if blocks == "unlike" else nodes
        for number in range(nodes // size):
            with ctx.block(f"layers.{number}") if blocks != "none" else nullcontext():
                for place in range(size // _ROUND):
                    x = ctx.ops.exp(ctx.ops.mul(ctx.ops.add(x, x), float(number + place)))
        return {"y": x}

    return EntryPoint("main", fn, (Argument("x", _SPEC),))


if __name__ == "__main__":
    serve(run)
