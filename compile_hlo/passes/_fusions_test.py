"""Which nodes become a helper function together, and which do not."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, TagSelection, TensorSpec

_X, _W = TensorSpec((1, 2, 64), "bf16"), TensorSpec((64,), "bf16")


def _helpers(fn: Callable[..., Any], *specs: TensorSpec, tags: TagSelection | None = None) -> list[str]:
    """Names of the helper functions, without what they are for."""
    arguments = tuple(Argument(f"x{i}", spec) for i, spec in enumerate(specs))
    pieces: list[str] = []
    lower_module([EntryPoint("main", fn, arguments)], pieces.append, ExternalParameters(), tags=tags)
    text = "".join(pieces)
    assert text.count("func.call") >= text.count("func.func private")
    return re.findall(r"func\.func private @(\w+)\.", text)


def _normed(ctx: Any, x: Any, w: Any) -> Any:
    return ctx.ops.rms_norm(x, w, 1e-5)


def _blocks(ctx: Any, x: Any) -> dict[str, Any]:
    return dict(zip("qst", ctx.ops.block_quantize(x), strict=True))


def test_a_norm_and_its_blocks_are_one_function():
    def twice(ctx: Any, x: Any, w: Any) -> Any:
        first = _blocks(ctx, _normed(ctx, x, w))
        other = _blocks(ctx, _normed(ctx, ctx.ops.mul(x, 2.0), w))  # its constants are those of the first
        return {**first, **{name * 2: value for name, value in other.items()}}

    assert _helpers(lambda ctx, x, w: _blocks(ctx, _normed(ctx, x, w)), _X, _W) == ["rms_norm_quantize"]
    assert _helpers(twice, _X, _W) == ["rms_norm_quantize"]


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_a_zero_centred_norm_is_one_too(kind: str):
    def fn(ctx: Any, x: Any, w: Any) -> Any:
        def body(x: Any, w: Any, eps: float) -> Any:
            scale = ctx.ops.add(ctx.ops.cast(w, "f32"), 1.0)
            return ctx.ops.cast(ctx.ops.rms_norm(ctx.ops.cast(x, "f32"), scale, eps), x.dtype)

        return _blocks(ctx, ctx.composite("zero_centred_rms_norm", body, (x, w), (1e-5,)))

    arguments = tuple(Argument(name, TensorSpec(shape, kind)) for name, shape in (("x", (3, 32)), ("w", (32,))))
    pieces: list[str] = []
    lower_module([EntryPoint("main", fn, arguments)], pieces.append, ExternalParameters())
    assert re.findall(r"private @([\w.]+)\(", "".join(pieces)) == [
        f"rms_norm_quantize.{kind}.3x32.{kind}.centred.0x1.4f8b580000000pm17"
    ]


def test_a_composite_is_known_by_its_name_whatever_ops_it_was_recorded_as():
    """A name stands for what it computes, as with gradients; ops that look the same are not taken for it."""

    def spelled(ctx: Any, x: Any, w: Any, eps: float) -> Any:
        wide = ctx.ops.cast(x, "f32")
        root = ctx.ops.rsqrt(ctx.ops.add(ctx.ops.mean(ctx.ops.mul(wide, wide), -1, keepdims=True), eps))
        return ctx.ops.mul(w, ctx.ops.cast(ctx.ops.mul(wide, root), x.dtype))

    def otherwise(ctx: Any, x: Any, w: Any, eps: float) -> Any:
        return ctx.ops.div(ctx.ops.mul(x, w), ctx.ops.sqrt(ctx.ops.mean(ctx.ops.mul(x, x), -1, keepdims=True)))

    def named(ctx: Any, x: Any, w: Any) -> Any:
        def body(x: Any, w: Any, eps: float) -> Any:
            return otherwise(ctx, x, w, eps)

        return _blocks(ctx, ctx.composite("rms_norm", body, (x, w), (1e-5,)))

    assert _helpers(lambda ctx, x, w: _blocks(ctx, spelled(ctx, x, w, 1e-5)), _X, _W) == ["block_quantize"]
    assert _helpers(named, _X, _W) == ["rms_norm_quantize"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c, x, w: {**_blocks(c, n := _normed(c, x, w)), "n": n},
        lambda c, x, w: _blocks(c, c.ops.mul(_normed(c, x, w), 2.0)),
        lambda c, x, w: _blocks(c, c.ops.layer_norm(x, w)),
        lambda c, x, w: _blocks(c, c.ops.l2_norm(x)),
        lambda c, x, w: _blocks(c, c.ops.mul(w, c.ops.l2_norm(x))),
    ],
    ids=["another use", "another op", "layer norm", "l2 norm", "l2 norm with a weight"],
)
def test_what_is_not_a_norm_alone_is_quantised_by_itself(change: Callable[..., Any]):
    assert _helpers(change, _X, _W) == ["block_quantize"]


def test_a_tag_keeps_what_it_names():
    def tagged(ctx: Any, x: Any, w: Any) -> dict[str, Any]:
        return _blocks(ctx, ctx.tag(_normed(ctx, x, w), "n"))

    assert _helpers(tagged, _X, _W, tags=TagSelection(("n",))) == ["block_quantize"]
    assert _helpers(tagged, _X, _W) == ["rms_norm_quantize"]


def test_a_gate_and_its_blocks_are_one_function():
    def gated(ctx: Any, gate: Any, x: Any) -> dict[str, Any]:
        return _blocks(ctx, ctx.ops.mul(ctx.ops.silu(gate), x))

    def turned(ctx: Any, gate: Any, x: Any) -> dict[str, Any]:
        return _blocks(ctx, ctx.ops.mul(x, ctx.ops.silu(gate)))

    def other(ctx: Any, gate: Any, x: Any) -> dict[str, Any]:
        return _blocks(ctx, ctx.ops.mul(ctx.ops.gelu_tanh(gate), x))

    for kind in ("f32", "bf16"):
        spec = TensorSpec((3, 32), kind)
        assert _helpers(gated, spec, spec) == _helpers(turned, spec, spec) == ["silu_quantize"]
    assert _helpers(gated, TensorSpec((3, 32), "bf16"), TensorSpec((3, 1), "bf16")) == ["block_quantize"]
    assert _helpers(other, _X, _X) == ["block_quantize"]


def _attended(queries: int, size: int, batch: int = 2) -> list[str]:
    def fn(c: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        y = c.ops.transpose(c.ops.cached_attention(q, k, v, bias, 0.5), (0, 3, 1, 2, 4))
        return _blocks(c, c.ops.reshape(y, (batch, queries, -1)))

    shapes = (batch, 2, 3, queries, 16), (batch, 2, 5, 16), (batch, 2, 5, size)
    specs = [TensorSpec(shape, "bf16") for shape in shapes]
    return _helpers(fn, *specs, TensorSpec((1, queries, 5), "f32"))


def test_attention_of_one_query_and_its_blocks_are_one_function():
    assert _attended(1, 64) == ["cached_attention_quantize"]
    apart = ["cached_attention", "block_quantize"]
    assert _attended(2, 64) == _attended(1, 48) == _attended(1, 4096 // 3 // 32 * 32 + 32) == apart
