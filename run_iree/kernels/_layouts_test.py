"""Kernels that are generated from an encoding's layout alone, on one token and on several.

A new encoding begins like this: a description, and the kernels of every instruction set agree with it.

By default each encoding has one set of kernels and each size one form of x; with TAPELINE_LONG=1 all.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo.emit import helper_head, tensor_type
from lang_core import BLOCK, ENCODINGS, BlockLayout, EagerExecutionContext, Encoding, Plane, SubScales
from run_iree import Session
from run_iree.kernels import CpuKernels, _catalogue
from run_iree.kernels._spelled_testing import compile_spelled, packed_linear

# As Q6_K, but two bits in one plane: all of a super-block's scales are bytes.
_TWO_BITS = BlockLayout(
    256, 82, (Plane(0, 2, 32),), offset=2, scale=80, scaled=16, sub_scales=SubScales(64, signed=True)
)
_MADE = Encoding("two_bits", _TWO_BITS.size, _TWO_BITS.bytes, 2, _TWO_BITS)
_ENCODINGS = {**ENCODINGS, _MADE.name: _MADE}
_TESTED_WHOLE = ("q8_0", "q4_0", "q4_k", "q6_k")  # by _kernels_test
_READ = {name: encoding for name, encoding in _ENCODINGS.items() if name not in _TESTED_WHOLE}
_SETS = {
    "vnni": CpuKernels(vnni=True),
    "avx512": CpuKernels(avx512=True, fma=True),
    "fma": CpuKernels(fma=True),
    "vector": CpuKernels(),
}
# (rows, outputs, columns): one token, several tokens with tiles that are full and that are not.
_SIZES = ((1, 37, 768), (37, 48, 512))
# One token, of more columns than a kernel's stack has room for, with a rest: of blocks of 32, and of super-blocks.
_LONG = {BLOCK: (1, 17, 14432), 256: (1, 17, 14592)}
_BITS = (8, 16)


def _name(sizes: tuple[int, int, int], bits: int) -> str:
    return f"product_{sizes[0]}_{sizes[2]}_{bits}"


def _function(encoding: Encoding, sizes: tuple[int, int, int], bits: int) -> str:
    """Returns an entry point and a helper function, whose body is replaced by the kernel's."""
    function = packed_linear(encoding, sizes, planes=bits // 8)
    kinds, y = [tensor_type(given.spec) for given in function.arguments], tensor_type(function.results[0].spec)
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    call = f"call @{function.name}(%a0, %a1, %a2, %a3) : ({', '.join(kinds)}) -> {y}"
    return f"""\
  func.func public @{_name(sizes, bits)}({arguments}) -> ({y}) {{
    %y = {call}
    return %y : {y}
  }}
{helper_head(function)}  }}
"""


def _inputs(
    encoding: Encoding, sizes: tuple[int, int, int], bits: int, exponents: range = range(120, 136), size: float = 1
) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Returns q, scale, total and w, and what the product is in f64.

    Args:
        encoding: encoding of w.
        sizes: rows, outputs and columns.
        bits: bits of x's integers.
        exponents: exponents to draw, for blocks that have one.
        size: standard deviation of x.
    """
    rows, outputs, columns = sizes
    rng = np.random.default_rng(rows)
    x = EagerExecutionContext().constant((size * rng.standard_normal((rows, columns))).astype(np.float32))
    q, scale, total = (tensor.numpy() for tensor in EagerExecutionContext().ops.block_quantize(x, bits))
    w = rng.integers(-128, 128, (outputs, columns // encoding.block, encoding.block_bytes)).astype(np.int8)
    for place in encoding.layout.halves:
        halves = (rng.standard_normal((*w.shape[:2], 1)) / 256).astype(np.float16)
        w[..., place : place + 2] = halves.view(np.int8)
    if encoding.layout.exponent:
        w[..., encoding.layout.scale] = rng.choice(exponents, w.shape[:2]).astype(np.uint8).view(np.int8)
    w = w.reshape(outputs, -1)
    integers = q[:, 0].astype(np.float64) if bits == 8 else 255.0 * q[:, 0] + q[:, 1]
    rounded = integers * np.repeat(scale.astype(np.float64), BLOCK, axis=-1)
    return [q, scale, total, w], rounded @ encoding.unpacked(w).astype(np.float64).T


def _sampled() -> list[Any]:
    """Returns sets of kernels with encodings: by default one set for each encoding, in turn."""
    sets, whole = list(_SETS), os.environ.get("TAPELINE_LONG")
    pairs = [(name, sets[(i + j) % 4]) for i, name in enumerate(_READ) for j in range(4 if whole else 1)]
    return [pytest.param(_SETS[kernels], _READ[name], id=f"{kernels}-{name}") for name, kernels in pairs]


@pytest.mark.parametrize(("kernels", "encoding"), _sampled())
def test_a_layout_is_enough_for_all_kernels(
    kernels: CpuKernels, encoding: Encoding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_catalogue, "encoding_named", _ENCODINGS.__getitem__)
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    whole = (
        list(itertools.product(_SIZES, _BITS)) if os.environ.get("TAPELINE_LONG") else zip(_SIZES, _BITS, strict=True)
    )
    cases = [*whole, (_LONG[encoding.block], 16)]
    functions = "".join(_function(encoding, sizes, bits) for sizes, bits in cases)
    module.write_text(f"module @m {{\n{functions}}}\n")
    assert len(compile_spelled(module, compiled, kernels).kernels) == len(cases)
    with Session(compiled, "local-task") as session:
        for sizes, bits in cases:
            inputs, expected = _inputs(encoding, sizes, bits)
            (y,) = session.function(_name(sizes, bits))(*inputs)
            np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q4_k", "q2_k"])
def test_sums_of_sixteen_bits_hold_the_greatest_products(name: str, tmp_path: Path):
    sizes, encoding = (16, 16, 512), ENCODINGS[name]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    module.write_text(f"module @m {{\n{_function(encoding, sizes, 8)}}}\n")
    report = compile_spelled(module, compiled, CpuKernels(fma=True))
    assert set(report.kernels.values()) == {"avx2-matmul"}
    (q, scale, _, w), _ = _inputs(encoding, sizes, 8)
    blocks, half = w.reshape(sizes[1], -1, encoding.block_bytes), np.array([0.5], np.float16).view(np.int8)
    with Session(compiled, "local-task") as session:
        for byte in (-1, 0, 15):  # integers of 15 and 0, and both in turn
            q[:8], q[8:], scale[:], w[:] = 127, -128, 1, byte
            for place in encoding.layout.halves:
                blocks[..., place : place + 2] = half
            total = q.reshape(sizes[0], -1, BLOCK).sum(axis=-1, dtype=np.int32)
            wanted = q[:, 0].astype(np.float64) @ encoding.unpacked(w).astype(np.float64).T
            (y,) = session.function(_name(sizes, 8))(q, scale, total, w)
            np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-6, err_msg=f"{byte}")


def test_avx512_reads_the_least_exponents_and_the_greatest_also_where_its_instructions_are_spelled_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_catalogue, "encoding_named", _ENCODINGS.__getitem__)
    module, compiled, encoding = tmp_path / "module.mlir", tmp_path / "module.vmfb", _ENCODINGS["mxfp4"]
    module.write_text(f"module @m {{\n{_function(encoding, _SIZES[0], 16)}}}\n")
    compile_spelled(module, compiled, CpuKernels(avx512=True), everything=True)
    with Session(compiled, "local-task") as session:
        for exponents, size in ((range(2), 1e30), (range(248, 252), 1e-30)):
            inputs, expected = _inputs(encoding, _SIZES[0], 16, exponents, size)
            (y,) = session.function(_name(_SIZES[0], 16))(*inputs)
            np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kernels", [CpuKernels(), CpuKernels(fma=True)], ids=["vector", "fma"])
def test_the_least_exponents_are_zero_and_the_next_are_read(
    kernels: CpuKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_catalogue, "encoding_named", _ENCODINGS.__getitem__)
    module, compiled, encoding = tmp_path / "module.mlir", tmp_path / "module.vmfb", _ENCODINGS["mxfp4"]
    module.write_text(f"module @m {{\n{_function(encoding, _SIZES[0], 16)}}}\n")
    compile_spelled(module, compiled, kernels)
    with Session(compiled, "local-task") as session:
        for exponents in (range(2), range(2, 5)):
            inputs, expected = _inputs(encoding, _SIZES[0], 16, exponents, 1e30)
            (y,) = session.function(_name(_SIZES[0], 16))(*inputs)
            if exponents[0] == 0:
                np.testing.assert_array_equal(y.numpy(), 0)
            else:
                np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("q5_0", "avx2-matvec"),
        ("q5_1", "avx2-matvec"),
        ("mxfp4", "avx2-matvec"),
        ("q2_k", "avx2-matvec"),
        ("q5_k", "avx2-matvec"),
        ("two_bits", "avx2-matvec"),
        ("q3_k", "avx2-matvec"),
        ("iq4_xs", "avx2-matvec"),
    ],
)
def test_one_token_gets_the_kernel_that_reads_the_layout(name: str, chosen: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_catalogue, "encoding_named", _ENCODINGS.__getitem__)
    function = packed_linear(_ENCODINGS[name], (1, 37, 768))
    kernel = CpuKernels(fma=True).kernel(function)
    assert kernel is not None
    assert kernel.name == chosen
    for kernels in (CpuKernels(avx512=True, fma=True), CpuKernels(vnni=True, avx512=True, fma=True)):
        kernel = kernels.kernel(function)
        assert kernel is not None
        assert kernel.name == "avx512-matvec"
