"""One token on AVX2: every encoding, x in one plane and in two, steps of every width, rows that the stack splits.

By default each encoding has each size in one form of x, in turn; with TAPELINE_LONG=1 in the environment in both.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from compile_hlo.emit import helper_head, tensor_type
from lang_core import BLOCK, ENCODINGS, EagerExecutionContext, Encoding
from run_iree import Session, host_cpu
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled, packed_linear

_KERNELS = CpuKernels(fma=True)
_NO_AVX2 = pytest.mark.skipif(not CpuKernels.of(host_cpu().features).fma, reason="this CPU has no AVX2")
# (outputs, columns): steps of six, four and two blocks, then more columns than the stack takes, in unequal parts.
_SIZES = ((5, 192), (4, 640), (3, 320), (2, 32512))
_BITS = (8, 16)


def _function(encoding: Encoding, outputs: int, columns: int, bits: int) -> str:
    """Returns an entry point and a helper function, whose body is replaced by the kernel's."""
    function = packed_linear(encoding, (1, outputs, columns), planes=bits // 8)
    kernel = _KERNELS.kernel(function)
    assert kernel is not None
    assert kernel.name == "avx2-matvec"
    kinds, y = [tensor_type(given.spec) for given in function.arguments], tensor_type(function.results[0].spec)
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    return f"""\
  func.func public @product_{encoding.name}_{columns}_{bits}({arguments}) -> ({y}) {{
    %y = call @{function.name}(%a0, %a1, %a2, %a3) : ({", ".join(kinds)}) -> {y}
    return %y : {y}
  }}
{helper_head(function)}  }}
"""


def _weight(rng: np.random.Generator, encoding: Encoding, outputs: int, columns: int) -> np.ndarray[Any, Any]:
    """Returns blocks of any bytes, with scales and minima of either sign."""
    w = rng.integers(-128, 128, (outputs, columns // encoding.block, encoding.block_bytes)).astype(np.int8)
    for place in encoding.layout.halves:
        halves = (rng.standard_normal((*w.shape[:2], 1)) / 256).astype(np.float16)
        w[..., place : place + 2] = halves.view(np.int8)
    if encoding.layout.exponent:
        w[..., encoding.layout.scale] = rng.integers(120, 136, w.shape[:2]).astype(np.uint8).view(np.int8)
    return w.reshape(outputs, -1)


def _nmse(y: np.ndarray[Any, Any], x: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> float:
    """Returns the squared error of a product, over what its terms' squares sum to, so that no cancellation counts."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    return float(((y - x @ weights.T) ** 2).sum() / (x**2 @ (weights**2).T).sum())


def _cases(encoding: Encoding) -> list[tuple[int, int, int]]:
    """Returns outputs, columns and bits of the products that an encoding has."""
    cases = [(*sizes, bits) for sizes in _SIZES if sizes[1] % encoding.block == 0 for bits in _BITS]
    turn = list(ENCODINGS).index(encoding.name)
    if os.environ.get("TAPELINE_LONG"):
        return cases
    return [case for i, case in enumerate(cases) if (i // 2 + turn) % 2 == i % 2]


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One module with the products of all encodings."""
    folder = tmp_path_factory.mktemp("products")
    module, compiled = folder / "module.mlir", folder / "module.vmfb"
    functions = [_function(encoding, *case) for encoding in ENCODINGS.values() for case in _cases(encoding)]
    module.write_text(f"module @m {{\n{''.join(functions)}}}\n")
    compile_spelled(module, compiled, _KERNELS)
    with Session(compiled, "local-task") as session:
        yield session


@_NO_AVX2
@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
def test_products_of_one_token_are_those_of_f64(encoding: Encoding, products: Session):
    rng, ops = np.random.default_rng(0), EagerExecutionContext().ops
    for outputs, columns, bits in _cases(encoding):
        x = rng.standard_normal((1, columns)).astype(np.float32)
        x[0, :BLOCK] = 0
        x[0, -BLOCK:] = -0.5
        blocks = ops.block_quantize(EagerExecutionContext().constant(x), bits)
        q, scale, total = (tensor.numpy() for tensor in blocks)
        w = _weight(rng, encoding, outputs, columns)
        (y,) = products.function(f"product_{encoding.name}_{columns}_{bits}")(q, scale, total, w)
        weights = encoding.unpacked(w)
        integers = q[:, 0].astype(np.float64) if bits == 8 else 255.0 * q[:, 0] + q[:, 1]
        rounded = integers * np.repeat(scale.astype(np.float64), BLOCK, axis=-1)
        assert _nmse(y.numpy(), rounded, weights) < 1e-11, (outputs, columns, bits)
        if bits == 16:
            assert _nmse(y.numpy(), x, weights) < 1e-8, (outputs, columns)
