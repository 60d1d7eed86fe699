"""Portable text made from a module's text against another lowering, with parameters as arguments."""

from pathlib import Path
from typing import Any

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters, portable_text
from lang_core import Argument, EntryPoint, Module, Parameter, TensorSpec


class _Layer(Module):
    def __init__(self) -> None:
        self.weight = Parameter((4, 4), "f32")

    def forward(self, ctx: Any, x: Any) -> Any:
        return ctx.ops.tanh(ctx.ops.linear(x, ctx.parameter(self.weight)))


class _Model(Module):
    def __init__(self) -> None:
        self.layers = [_Layer(), _Layer()]
        self.scale = Parameter((4,), "f32")
        self.last = Parameter((4,), "f32")

    def step(self, ctx: Any, position: Any, x: Any, count: Any, cache: Any) -> dict[str, Any]:
        """Reads its parameters in blocks, beside them, and within a loop; two arguments are numbers."""
        for layer in self.layers:
            with ctx.block(layer.path):
                x = layer(ctx, x)

        def body(i: Any, y: Any) -> tuple[Any]:
            del i
            return (ctx.ops.mul(y, ctx.parameter(self.scale)),)

        (y,) = ctx.ops.fori_loop(3, body, (x,))
        zero = ctx.constant(0, "i32")
        cache = ctx.ops.dynamic_update_slice(cache, y, (position, zero))
        return {"cache": cache, "count": ctx.ops.add(count, position)}

    def whole(self, ctx: Any, x: Any) -> dict[str, Any]:
        """Reads another parameter, and none of the loop's."""
        return {"y": ctx.ops.add(self.layers[1](ctx, x), ctx.parameter(self.last))}


def _entry_points() -> list[EntryPoint]:
    model = _Model()
    number, x, narrow = TensorSpec((), "i32"), TensorSpec((1, 4), "f32"), TensorSpec((3, 4), "bf16")
    arguments = (
        Argument("position", number, "scalar"),
        Argument("x", x),
        Argument("count of steps", number, "scalar"),  # no name of MLIR's: it gets a number
        Argument("cache", TensorSpec((5, 4), "f32"), alias_result="cache"),
    )
    return [
        EntryPoint("step", model.step, arguments),
        EntryPoint("whole", model.whole, (Argument("x", x),)),
        EntryPoint("nothing", lambda ctx, x: {"y": ctx.ops.exp(x)}, (Argument("x", x),)),
        EntryPoint("helped", lambda ctx, x: {"y": ctx.ops.linear(x, x)}, (Argument("x", narrow),)),
    ]


@pytest.mark.parametrize("locations", [False, True])
def test_the_text_is_what_another_lowering_writes(locations: bool, tmp_path: Path) -> None:
    for streaming in (False, True):
        module = tmp_path / "module.mlir"
        with module.open("w") as file:
            external = ExternalParameters()
            lowered = lower_module(_entry_points(), file.write, external, streaming=streaming, locations=locations)
        assert "tapeline.helper" in module.read_text()
        known = {function.name: function.parameters for function in lowered.functions}
        expected: list[str] = []
        form = ArgumentParameters(lowered.parameters())
        lower_module(_entry_points(), expected.append, form, streaming=streaming, locations=locations)
        rewritten = "".join(portable_text(module, dict(lowered.parameters().items()), known))
        assert rewritten == "".join(expected)
        assert "util." not in rewritten
        assert "iree" not in rewritten
        assert "tapeline.helper" not in rewritten
