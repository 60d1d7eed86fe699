"""Kernels of quantized caches: blocks are the eager op's, and attention has the bits of that over unpacked entries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    BLOCK,
    ENCODINGS,
    Argument,
    EagerExecutionContext,
    Encoding,
    EntryPoint,
    ExecutionContext,
    Tensor,
    TensorSpec,
)
from lang_core.ops import CACHE_ENCODINGS
from run_iree import Session, compile_module

# (B, K, G, T, H, S, H', rows of the bias, rows of the caches, pages of a sequence)
_SIZES = (
    (1, 3, 3, 1, 64, 40, 32, 1, 0, 1),  # several rows side by side
    (2, 1, 4, 5, 32, 21, 64, 2, 0, 1),  # panels
    (2, 2, 5, 1, 32, 48, 96, 1, 3, 1),
    (3, 2, 2, 6, 64, 16, 32, 1, 7, 3),
)


def _attention(sizes: tuple[int, ...], encoding: Encoding, *, packed: bool, blocks: bool) -> EntryPoint:
    batch, shared, group, queries, size, keys, values, biases, cached, pages = sizes

    def fn(ctx: ExecutionContext, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *rows: Tensor) -> dict[str, Tensor]:
        ops = ctx.ops
        if packed:
            y = ops.packed_cached_attention(q, k, v, bias, 0.3, encoding, *rows)
        else:
            k, v = (ctx.tag(ops.dequantize(x, encoding), name) for x, name in ((k, "k"), (v, "v")))
            y = ops.cached_attention(q, k, v, bias, 0.3, *rows)
        if not blocks:
            return {"y": y}
        flat = ops.reshape(ops.transpose(y, (0, 3, 1, 2, 4)), (batch, queries, -1))
        return dict(zip(("q", "scale", "total"), ops.block_quantize(flat), strict=True))

    stored, bytes_of = cached or batch, encoding.block_bytes
    specs = {
        "q": TensorSpec((batch, shared, group, queries, size), "f32"),
        "k": TensorSpec((stored, shared, keys, size // BLOCK * bytes_of), "i8"),
        "v": TensorSpec((stored, shared, keys, values // BLOCK * bytes_of), "i8"),
        "bias": TensorSpec((biases, queries, keys * pages), "f32"),
    }
    if cached:
        specs["rows"] = TensorSpec((batch, pages) if pages > 1 else (batch,), "i32")
    name = f"{encoding.name}_{batch}_{group}_{queries}_{packed}_{blocks}"
    return EntryPoint(name, fn, tuple(Argument(name, spec) for name, spec in specs.items()))


def _quantize(shape: tuple[int, ...], encoding: Encoding, dtype: str) -> EntryPoint:
    def fn(ctx: ExecutionContext, x: Tensor) -> dict[str, Tensor]:
        return {"y": ctx.ops.quantize(x, encoding)}

    return EntryPoint(f"quantize_{encoding.name}_{dtype}", fn, (Argument("x", TensorSpec(shape, dtype)),))


def _inputs(point: EntryPoint, encoding: Encoding) -> list[np.ndarray[Any, Any]]:
    rng, arrays = np.random.default_rng(5), []
    for argument in point.arguments:
        spec = argument.spec
        if argument.name in "kv":
            shape = (*spec.shape[:3], spec.shape[3] // encoding.block_bytes * BLOCK)
            arrays.append(encoding.pack(rng.standard_normal(shape).astype(np.float32)))
        elif argument.name == "rows":
            arrays.append(rng.integers(-1, 9, spec.shape).astype(np.int32))
        else:
            arrays.append(rng.standard_normal(spec.shape).astype(spec.dtype.numpy))
    if len(arrays) > 1:
        arrays[3][:, :, 17:] = -1e30
    return arrays


@pytest.mark.parametrize("name", CACHE_ENCODINGS)
def test_blocks_and_attention_are_exact(name: str, tmp_path: Path) -> None:
    encoding = ENCODINGS[name]
    pairs = [
        [_attention(sizes, encoding, packed=packed, blocks=blocks) for packed in (True, False)]
        for sizes in _SIZES
        for blocks in (False, True)
        if not (blocks and sizes[3] > 1)
    ]
    packing = [_quantize((2, 3, 5, 3 * BLOCK), encoding, dtype) for dtype in ("f32", "bf16", "f16")]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module([*(point for pair in pairs for point in pair), *packing], file.write, ExternalParameters())
    report = compile_module(module, compiled, "llvm-cpu")
    kernels = [kernel for kernel in report.kernels if kernel.startswith(("packed_cached_attention", "quantize."))]
    assert len(kernels) == len(pairs) + len(packing)
    with Session(compiled, "local-task") as session:
        for one, other in pairs:
            inputs = _inputs(one, encoding)
            made, wanted = ([x.numpy() for x in session.function(point.name)(*inputs)] for point in (one, other))
            for a, b in zip(made, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=one.name)
            if len(made) == 1:
                ctx = EagerExecutionContext()
                eager = one(ctx, *map(ctx.constant, inputs))["y"].numpy()
                np.testing.assert_allclose(made[0], eager, rtol=0, atol=2e-6 * np.abs(eager).max())
        for point in packing:
            (x,) = _inputs(point, encoding)
            x[0, 0, 0, :BLOCK], x[0, 1, 1, :BLOCK] = 0, 2.0**-120
            x[1, 0, 2, 7], x[1, 2, 4, 50], x[1, 1, 1, BLOCK : 2 * BLOCK] = np.inf, np.nan, 6e4
            x[0, 2, 3, 3], x[0, 2, 3, 7] = 9, -9
            if point.arguments[0].spec.dtype.name != "f16":
                x[1, 1, 3, 1] = 1e9  # its scale is beyond f16
            ctx = EagerExecutionContext()
            (y,) = session.function(point.name)(x)
            np.testing.assert_array_equal(y.numpy(), point(ctx, ctx.constant(x))["y"].numpy(), err_msg=point.name)
