"""A small model of blocks, for the tests of this room."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, Form, InlineParameters
from lang_core import Argument, EntryPoint, Module, Parameter, TensorSpec
from tapeline.analysis.outline import Outline, read_outline

SPEC: Final = TensorSpec((2, 3), "f32")


class Layer(Module):
    """Layer that scales; kind ``b`` has a loop after it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.weight = Parameter((3,))

    def forward(self, ctx: Any, x: Any) -> Any:
        x = ctx.ops.mul(x, ctx.parameter(self.weight))
        if self.kind == "b":
            (x,) = ctx.ops.while_loop(
                lambda y: ctx.ops.less(ctx.ops.sum(y), ctx.constant(np.float32(7))),
                lambda y: (ctx.ops.add(y, ctx.constant(np.float32(1))),),
                (x,),
            )
        return x


class Stack(Module):
    """Stack of layers, each with a cache."""

    def __init__(self, kinds: str) -> None:
        self.layers = [Layer(kind) for kind in kinds]

    def forward(self, ctx: Any, x: Any, *caches: Any) -> dict[str, Any]:
        results = {}
        x = ctx.ops.exp(x)
        for i, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            with ctx.block(f"layers.{i}"):
                x = layer(ctx, x)
                results[f"layers.{i}.cache"] = ctx.ops.add(cache, x)
        return {"y": ctx.ops.negate(x), **results}


def entry_point(kinds: str, name: str = "forward") -> EntryPoint:
    """Returns the entry point of a stack of layers of these kinds."""
    caches = [f"layers.{i}.cache" for i in range(len(kinds))]
    arguments = [Argument("x", SPEC), *(Argument(name, SPEC, alias_result=name) for name in caches)]
    return EntryPoint(name, Stack(kinds), tuple(arguments))


def write_module(path: Path, kinds: str, *, block_functions: bool = True, inline: bool = False) -> Path:
    """Writes the module's text, and returns its path."""
    form: Form = ExternalParameters()
    if inline:
        form = InlineParameters(lambda _, spec: [np.arange(spec.size, dtype=np.float32).reshape(spec.shape)])
    with path.open("w") as file:
        lower_module([entry_point(kinds)], file.write, form, streaming=True, block_functions=block_functions)
    return path


def outline_of(path: Path, kinds: str, **options: Any) -> Outline:
    """Writes and reads a module, with the names of arguments and results."""
    point = entry_point(kinds)
    names = [argument.name for argument in point.arguments]
    return read_outline(write_module(path, kinds, **options), {"forward": (names, ["y", *names[1:]])})
