"""Names of entry points that are no names of functions are refused before anything is recorded."""

from typing import Any

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, RecordingError, TensorSpec

_ARGUMENTS = (Argument("x", TensorSpec((2,), "f32")),)


def _exp(ctx: Any, x: Any) -> Any:
    with ctx.block("layers.0"):
        return {"y": ctx.ops.exp(x)}


def _lower(*names: str) -> str:
    lines: list[str] = []
    lower_module([EntryPoint(name, _exp, _ARGUMENTS) for name in names], lines.append, ExternalParameters())
    return "".join(lines)


@pytest.mark.parametrize("name", ["", "x" * 129, "x" * 300, "é" * 65, "a\nb", "a\0", "\ud800", "__init", "__x"])
def test_what_is_no_name_of_a_function_is_refused(name: str) -> None:
    with pytest.raises(RecordingError, match=r"an entry point is named .*: expected 1 to 128 bytes of printable"):
        _lower("main", name)


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(RecordingError, match="two entry points are named 'f': give each a name of its own"):
        _lower("f", "g", "f")


def test_a_name_that_the_lowering_gives_is_refused() -> None:
    with pytest.raises(RecordingError, match=r"named 'block\.layers\.N', as a function that the lowering makes"):
        _lower("main", "block.layers.N")


def test_a_call_without_entry_points_is_an_empty_module() -> None:
    assert _lower().startswith("module @")


@pytest.mark.parametrize("name", ["x" * 128, "a b", "é", "a-b/c", "0", '"', "$", "_x", "module"])
def test_other_names_are_names(name: str) -> None:
    assert "func.func public @" in _lower(name)


def test_branches_that_nest_deep_are_lowered() -> None:
    def deep(ctx: Any, x: Any, depth: int = 200) -> Any:
        if depth == 0:
            return x
        pred = ctx.ops.greater(ctx.ops.sum(x), float(depth))
        return ctx.ops.cond(pred, lambda a: (deep(ctx, a, depth - 1),), lambda a: (ctx.ops.negate(a),), (x,))[0]

    lines: list[str] = []
    point = EntryPoint("main", lambda ctx, x: {"y": deep(ctx, x)}, _ARGUMENTS)
    lower_module([point], lines.append, ExternalParameters())
    assert "".join(lines).count("stablehlo.if") == 200
