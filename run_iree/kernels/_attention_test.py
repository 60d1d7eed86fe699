"""The kernel of attention in decoding against the eager op."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EagerExecutionContext, EntryPoint, ExecutionContext, Tensor, TensorSpec, as_dtype
from run_iree import Session, compile_module
from run_iree.kernels._attention_keys import KEYS
from run_iree.kernels._attention_rows import Share
from run_iree.kernels._attention_sizes import AttentionSizes
from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._lines import LINE, element_bytes
from run_iree.kernels._spelled_testing import compile_spelled

# (B, K, G, T, H, S, H', rows of the bias): whole blocks of keys and not, groups of one, values of another size, several
# workgroups for a head.
_SIZES = (
    (1, 2, 4, 1, 64, 48, 64, 1), (2, 3, 1, 1, 32, 37, 16, 2), (2, 1, 5, 3, 16, 21, 48, 1), (2, 2, 3, 7, 48, 40, 16, 2),
    (1, 1, 6, 86, 16, 33, 32, 1),
)  # fmt: skip
# The same, of caches with so many rows, of which sequences choose.
_CACHED = ((2, 3, 1, 1, 32, 37, 32, 2, 5), (3, 2, 5, 1, 16, 21, 96, 1, 2), (1, 2, 3, 8, 48, 40, 16, 1, 4))
_TOLERANCE = {"f32": 2e-6, "bf16": 1e-2, "f16": 2e-3}


def _typed(sizes: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], str]]:
    """Returns sizes with dtypes: by default one dtype for each, in turn, as a dtype has no part in most of a kernel."""
    if os.environ.get("TAPELINE_LONG"):
        return list(itertools.product(sizes, _TOLERANCE))
    return list(zip(sizes, itertools.cycle(_TOLERANCE), strict=False))


def _entry_point(sizes: tuple[int, ...], dtype: str) -> EntryPoint:
    batch, shared, group, queries, size, keys, values, rows = sizes

    def fn(ctx: ExecutionContext, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> dict[str, Tensor]:
        return {"y": ctx.ops.cached_attention(q, k, v, bias, 0.3)}

    shapes = {
        "q": (batch, shared, group, queries, size),
        "k": (batch, shared, keys, size),
        "v": (batch, shared, keys, values),
    }
    arguments = [Argument(name, TensorSpec(shape, dtype)) for name, shape in shapes.items()]
    bias = Argument("bias", TensorSpec((rows, queries, keys), "f32"))
    return EntryPoint(f"attention_{batch}_{group}_{queries}_{dtype}", fn, (*arguments, bias))


def _inputs(point: EntryPoint, seen: slice) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    *qkv, bias = (argument.spec for argument in point.arguments)
    hidden = np.full(bias.shape, -1e30, np.float32)
    hidden[:, :, seen] = rng.standard_normal(hidden[:, :, seen].shape)
    hidden[-1, -1, seen.start] = -1e30
    return [*(rng.standard_normal(spec.shape).astype(spec.dtype.numpy) for spec in qkv), hidden]


def test_it_computes_what_the_eager_op_does(tmp_path: Path):
    points = [_entry_point(sizes, dtype) for sizes, dtype in _typed(_SIZES)]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    report = compile_module(module, compiled, "llvm-cpu")
    assert len(report.kernels) == len(points)
    assert set(report.kernels.values()) == {"vector-cached-attention"}
    with Session(compiled, "local-task") as session:
        for point in points:
            dtype = point.arguments[0].spec.dtype.name
            for seen in (slice(0, 2), slice(0, 19), slice(17, 21), slice(3, None)):
                inputs = _inputs(point, seen)
                ctx = EagerExecutionContext()
                wanted = point(ctx, *map(ctx.constant, inputs))["y"].numpy().astype(np.float32)
                (y,) = session.function(point.name)(*inputs)
                assert as_dtype(y.numpy().dtype) is as_dtype(dtype)
                np.testing.assert_allclose(
                    y.numpy().astype(np.float32), wanted, rtol=0, atol=_TOLERANCE[dtype] * np.abs(wanted).max()
                )


def _of_rows(sizes: tuple[int, ...], dtype: str, *, copied: bool, blocks: bool) -> EntryPoint:
    batch, shared, group, queries, size, keys, values, biases, cached = sizes

    def fn(ctx: ExecutionContext, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, rows: Tensor) -> dict[str, Tensor]:
        ops = ctx.ops
        if copied:
            k, v = ctx.tag(ops.take(k, rows), "k"), ctx.tag(ops.take(v, rows), "v")
        y = ops.cached_attention(q, k, v, bias, 0.3, *([] if copied else [rows]))
        if not blocks:
            return {"y": y}
        flat = ops.reshape(ops.transpose(y, (0, 3, 1, 2, 4)), (batch, queries, -1))
        return dict(zip(("q", "scale", "total"), ops.block_quantize(flat), strict=True))

    shapes = (batch, shared, group, queries, size), (cached, shared, keys, size), (cached, shared, keys, values)
    given = [Argument(name, TensorSpec(shape, dtype)) for name, shape in zip("qkv", shapes, strict=True)]
    bias, rows = TensorSpec((biases, queries, keys), "f32"), TensorSpec((batch,), "i32")
    name = f"rows_{batch}_{group}_{dtype}_{copied}_{blocks}"
    return EntryPoint(name, fn, (*given, Argument("bias", bias), Argument("rows", rows)))


def test_rows_of_caches_are_read_where_they_lie(tmp_path: Path):
    cases = [(*case, blocks) for case in _typed(_CACHED) for blocks in (False, True) if not (blocks and case[0][3] > 1)]
    points = [
        _of_rows(sizes, dtype, copied=copied, blocks=blocks)
        for sizes, dtype, blocks in cases
        for copied in (False, True)
    ]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    report = compile_module(module, compiled, "llvm-cpu")
    names = [name for name in report.kernels if "of" in name]
    assert len(names) == len(cases)
    assert sum(name.startswith("cached_attention_quantize.") for name in names) == sum(case[2] for case in cases)
    assert sum(case[2] for case in cases) >= 2
    with Session(compiled, "local-task") as session:
        for point, other in zip(points[::2], points[1::2], strict=True):
            cached = point.arguments[1].spec.shape[0]
            for chosen in (np.arange(4)[: point.arguments[0].spec.shape[0]][::-1], np.array([-1, cached, 1])):
                rows = chosen[: point.arguments[0].spec.shape[0]].astype(np.int32)
                inputs = [*_inputs(dataclasses.replace(point, arguments=point.arguments[:4]), slice(0, 19)), rows]
                made = [result.numpy() for result in session.function(point.name)(*inputs)]
                wanted = [result.numpy() for result in session.function(other.name)(*inputs)]
                for one, two in zip(made, wanted, strict=True):
                    np.testing.assert_array_equal(one, two, err_msg=f"{point.name} {rows}")


# (B, K, G, T, H, page, H', rows of the bias), pages in all, pages of a sequence.
_PAGED = (((2, 3, 1, 1, 32, 16, 32, 2), 7, 3), ((3, 2, 5, 1, 16, 32, 96, 1), 9, 2), ((1, 2, 3, 8, 48, 48, 16, 1), 4, 4))


def _of_pages(sizes: tuple[int, ...], stored: int, pages: int, dtype: str, *, gathered: bool) -> EntryPoint:
    batch, shared, group, queries, size, page, values, biases = sizes

    def fn(ctx: ExecutionContext, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, table: Tensor) -> dict[str, Tensor]:
        ops = ctx.ops
        if not gathered:
            return {"y": ops.cached_attention(q, k, v, bias, 0.3, table)}
        lines = ops.reshape(table, (batch * pages,))
        k, v = (
            ctx.tag(
                ops.reshape(
                    ops.transpose(
                        ops.reshape(ops.take(cache, lines), (batch, pages, shared, page, -1)), (0, 2, 1, 3, 4)
                    ),
                    (batch, shared, pages * page, -1),
                ),
                name,
            )
            for name, cache in (("k", k), ("v", v))
        )
        return {"y": ops.cached_attention(q, k, v, bias, 0.3)}

    shapes = (batch, shared, group, queries, size), (stored, shared, page, size), (stored, shared, page, values)
    given = [Argument(name, TensorSpec(shape, dtype)) for name, shape in zip("qkv", shapes, strict=True)]
    bias, table = TensorSpec((biases, queries, pages * page), "f32"), TensorSpec((batch, pages), "i32")
    name = f"pages_{batch}_{group}_{dtype}_{gathered}"
    return EntryPoint(name, fn, (*given, Argument("bias", bias), Argument("table", table)))


def test_pages_are_read_by_the_table_with_the_bits_of_whole_caches(tmp_path: Path):
    turns = list(zip(_PAGED, _TOLERANCE, strict=True))
    cases = list(itertools.product(_PAGED, _TOLERANCE)) if os.environ.get("TAPELINE_LONG") else turns
    points = [_of_pages(*sizes, dtype, gathered=gathered) for sizes, dtype in cases for gathered in (False, True)]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    report = compile_module(module, compiled, "llvm-cpu")
    assert sum("by" in name for name in report.kernels) == len(cases)
    rng = np.random.default_rng(3)
    with Session(compiled, "local-task") as session:
        for point, other in zip(points[::2], points[1::2], strict=True):
            table, stored = point.arguments[4].spec, point.arguments[1].spec.shape[0]
            dtype = point.arguments[0].spec.dtype.name
            for _ in range(3):
                pages = rng.integers(-1, stored + 1, table.shape).astype(np.int32)
                of_op = dataclasses.replace(point, arguments=point.arguments[:4])
                inputs = [*_inputs(of_op, slice(0, int(rng.integers(2, of_op.arguments[3].spec.shape[2])))), pages]
                made = session.function(point.name)(*inputs)[0].numpy()
                wanted = session.function(other.name)(*inputs)[0].numpy()
                np.testing.assert_array_equal(made, wanted, err_msg=f"{point.name} {pages}")
                ctx = EagerExecutionContext()
                eager = point(ctx, *map(ctx.constant, inputs))["y"].numpy().astype(np.float32)
                atol = _TOLERANCE[dtype] * np.abs(eager).max()
                np.testing.assert_allclose(made.astype(np.float32), eager, rtol=0, atol=atol)


def test_keys_that_are_hidden_are_not_read(tmp_path: Path):
    point = _entry_point(_SIZES[0], "f32")
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module([point], file.write, ExternalParameters())
    compile_module(module, compiled, "llvm-cpu")
    inputs = _inputs(point, slice(0, 5))
    with Session(compiled, "local-task") as session:
        expected = session.function(point.name)(*inputs)[0].numpy().copy()
        far = [*inputs[:3], np.full_like(inputs[3], -1e28)]  # keys that count alike, as tokens of padding see them
        spread = np.broadcast_to(inputs[2].mean(2)[:, :, None, None], expected.shape)
        np.testing.assert_allclose(session.function(point.name)(*far)[0].numpy(), spread, rtol=0, atol=1e-6)
        inputs[1][:, :, 16:], inputs[2][:, :, 16:] = np.nan, np.inf  # blocks of sixteen are left out whole
        np.testing.assert_array_equal(session.function(point.name)(*inputs)[0].numpy(), expected)


def test_rows_side_by_side_have_the_bits_of_each_alone(tmp_path: Path):
    sizes = ((1, 1, 3, 1, 32, 40, 32, 1), (2, 1, 4, 2, 64, 37, 80, 1), (1, 2, 3, 4, 16, 48, 16, 1))
    points = [_entry_point(size, "f32") for size in sizes]  # without panels, with them and five registers of sums
    module, results = tmp_path / "module.mlir", list[list[np.ndarray]]()
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    for kernels in (CpuKernels(), CpuKernels(avx512=True)):
        compiled = tmp_path / f"{kernels.avx512}.vmfb"
        compile_spelled(module, compiled, kernels)
        results.append([])
        with Session(compiled, "local-task") as session:
            for point in points:
                q, k, v, bias = _inputs(point, slice(0, 37))
                bias[:, 0, 16:] = -1e30  # some rows see the second block, and some do not
                results[-1].append(session.function(point.name)(q, k, v, bias)[0].numpy().copy())
    for alone, together in zip(*results, strict=True):
        np.testing.assert_array_equal(alone, together)


def test_rows_ask_for_all_lines_of_the_next_keys_between_them():
    for group, size, kind in ((8, 64, "f32"), (3, 64, "f16"), (5, 48, "bf16"), (80, 64, "f32")):
        sizes = AttentionSizes(1, 2, group, 1, size, 64, size, 1)
        share = Share.of(sizes, kind, size)
        asked = {min(row * share.row, share.last) + line for row in range(sizes.own) for line in share.lines}
        assert asked >= {*range(0, KEYS * size, LINE // element_bytes(kind))}
        assert len(asked) < 2 * KEYS * size * element_bytes(kind) // LINE


# One query: heads that share keys and such that do not, an odd number of blocks.
_BLOCK_SIZES = ((1, 2, 4, 1, 64, 48, 64, 1), (2, 3, 1, 1, 32, 37, 32, 2), (2, 1, 5, 1, 16, 21, 96, 1))


def test_one_query_in_blocks_is_the_bits_of_the_two_kernels(tmp_path: Path):
    cases = [_entry_point(sizes, dtype) for sizes, dtype in _typed(_BLOCK_SIZES)]

    def blocks(ctx: ExecutionContext, given: tuple[Tensor, ...], apart: bool) -> dict[str, Tensor]:
        q, k, v, bias = given
        y = ctx.ops.cached_attention(q, k, v, bias, 0.3)
        flat = ctx.ops.reshape(ctx.ops.transpose(y, (0, 3, 1, 2, 4)), (y.shape[0], 1, -1))
        q, scale, total = ctx.ops.block_quantize(flat)
        results = {"q": q, "scale": scale, "total": total}
        return {**results, "y": y} if apart else results

    points = [
        EntryPoint(f"{point.name}_{apart}", lambda ctx, *x, apart=apart: blocks(ctx, x, apart), point.arguments)
        for point in cases
        for apart in (False, True)
    ]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    report = compile_module(module, compiled, "llvm-cpu")
    assert sum(name.startswith("cached_attention_quantize.") for name in report.kernels) == len(cases)
    assert len(report.kernels) == 3 * len(cases)
    with Session(compiled, "local-task") as session:
        for point in cases:
            for seen in (slice(0, 2), slice(3, None)):
                inputs = _inputs(point, seen)
                fused = session.function(f"{point.name}_False")(*inputs)
                wanted = session.function(f"{point.name}_True")(*inputs)
                for one, other in zip(fused, wanted[:3], strict=True):
                    np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=point.name)
