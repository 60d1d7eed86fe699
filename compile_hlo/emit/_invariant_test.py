"""Entry points that ask for a token's own bits have products of their own, which say so in their records."""

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, read_helper
from lang_core import Argument, EntryPoint, TensorSpec


def _point(name: str, dtype: str, batch_invariant: bool) -> EntryPoint:
    x, w = Argument("x", TensorSpec((2, 32), dtype)), Argument("w", TensorSpec((3, 32), dtype))
    return EntryPoint(name, lambda ctx, x, w: {"y": ctx.ops.linear(x, w)}, (x, w), batch_invariant)


def _helpers(*points: EntryPoint) -> list[tuple[str, dict[str, object]]]:
    pieces: list[str] = []
    lower_module(points, pieces.append, ExternalParameters())
    records = filter(None, map(read_helper, "".join(pieces).splitlines(keepends=True)))
    return [(record.name, dict(record.attributes)) for record in records]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_products_of_16_bits_are_two_functions(dtype: str):
    name = f"linear.{dtype}.{dtype}.2x3x32"
    plain, apart = (name, {}), (f"{name}.invariant", {"batch_invariant": True})
    assert _helpers(_point("plain", dtype, False), _point("slots", dtype, True)) == [plain, apart]
    assert _helpers(_point("slots", dtype, True), _point("plain", dtype, False)) == [apart, plain]


def test_products_of_f32_are_functions_only_then():
    name = "linear.f32.f32.2x3x32.invariant"
    assert _helpers(_point("plain", "f32", False), _point("slots", "f32", True)) == [(name, {"batch_invariant": True})]
