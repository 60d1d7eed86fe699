"""Products keep their numbers in the forms that XLA compiles well, and nothing is copied for them."""

from typing import Any

import jax.interpreters.mlir
import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir import ir

from run_jax import StableHloFunction
from run_jax.sessions._products import improve_products

_ROW = """func.func public @f(%x: tensor<1x64xbf16>, %w: tensor<96x64xbf16>) -> tensor<1x96xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
    : (tensor<1x64xbf16>, tensor<96x64xbf16>) -> tensor<1x96xf32>
  return %y : tensor<1x96xf32>
}"""
_KEYS = """func.func public @f(%q: tensor<2x3x4x5x8xf32>, %k: tensor<2x3x7x8xf32>) -> tensor<2x3x4x5x7xf32> {
  %y = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [3],
    precision = [HIGHEST, HIGHEST] : (tensor<2x3x4x5x8xf32>, tensor<2x3x7x8xf32>) -> tensor<2x3x4x5x7xf32>
  return %y : tensor<2x3x4x5x7xf32>
}"""


def _improved(text: str, platform: str) -> str:
    with jax.interpreters.mlir.make_ir_context():
        module = ir.Module.parse(text)
        improve_products(module, platform)
        assert module.operation.verify()
        return str(module)


def _drawn(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def test_one_row_of_bf16_on_a_cpu_is_multiplied_as_two() -> None:
    x, w = _drawn((1, 64), (96, 64), dtype=ml_dtypes.bfloat16)
    text = _improved(_ROW, "cpu")
    assert "(tensor<2x64xbf16>, tensor<96x64xbf16>) -> tensor<2x96xf32>" in text
    wanted = x.astype(np.float32) @ w.astype(np.float32).T
    np.testing.assert_allclose(StableHloFunction(text)(x, w)[0], wanted, rtol=1e-3, atol=1e-4)


def test_elsewhere_one_row_stays_one() -> None:
    assert "tensor<2x" not in _improved(_ROW, "cuda")


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_keys_of_a_cache_are_taken_as_they_lie(platform: str) -> None:
    q, k = _drawn((2, 3, 4, 5, 8), (2, 3, 7, 8))
    text = _improved(_KEYS, platform)
    (product,) = [line for line in text.splitlines() if "dot_general" in line]
    assert "(tensor<2x3x7x8xf32>, tensor<2x3x4x5x8xf32>) -> tensor<2x3x7x4x5xf32>" in product
    assert "precision = [HIGHEST, HIGHEST]" in product
    np.testing.assert_allclose(
        StableHloFunction(text)(q, k)[0], np.einsum("bkgth,bksh->bkgts", q, k), rtol=1e-4, atol=1e-5
    )
