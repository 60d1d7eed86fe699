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


_BLOCKS = """func.func public @f(%x: tensor<1x96xf32>, %q: tensor<5x3x32xi8>, %s: tensor<5x3xf32>) -> tensor<1x5xf32> {
  %c = stablehlo.convert %q : (tensor<5x3x32xi8>) -> tensor<5x3x32xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<5x3xf32>) -> tensor<5x3x32xf32>
  %m = stablehlo.multiply %c, %b : tensor<5x3x32xf32>
  %w = stablehlo.reshape %m : (tensor<5x3x32xf32>) -> tensor<5x96xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST]
    : (tensor<1x96xf32>, tensor<5x96xf32>) -> tensor<1x5xf32>
  return %y : tensor<1x5xf32>
}"""


def _improved(text: str, platform: str, devices: int = 1) -> str:
    with jax.interpreters.mlir.make_ir_context():
        module = ir.Module.parse(text)
        improve_products(module, platform, devices)
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


def test_one_row_by_packed_weights_on_a_cpu_is_summed_along_their_blocks() -> None:
    (x,) = _drawn((1, 96))
    codes = np.random.default_rng(1).integers(-128, 128, (5, 3, 32)).astype(np.int8)
    (scales,) = _drawn((5, 3))
    text = _improved(_BLOCKS, "cpu")
    assert "dot_general" not in text
    assert "across dimensions = [1] : (tensor<5x3x32xf32>, tensor<f32>) -> tensor<5x32xf32>" in text
    wanted = x @ (codes * scales[..., None]).reshape(5, 96).T
    np.testing.assert_allclose(StableHloFunction(text)(x, codes, scales)[0], wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("platform", "devices"), [("cuda", 1), ("cpu", 2)])
def test_on_a_gpu_and_on_a_mesh_packed_weights_are_multiplied_as_rows(platform: str, devices: int) -> None:
    assert "dot_general %arg0, " in _improved(_BLOCKS, platform, devices)


def test_rows_that_are_no_blocks_are_multiplied_as_rows() -> None:
    two_rows = _BLOCKS.replace("tensor<1x96xf32>", "tensor<2x96xf32>").replace("tensor<1x5xf32>", "tensor<2x5xf32>")
    assert "dot_general %arg0, " in _improved(two_rows, "cpu")
    of_other_rows = _BLOCKS.replace("5x3x32x", "10x3x16x").replace("5x3xf32", "10x3xf32")
    assert "dot_general %arg0, " in _improved(of_other_rows, "cpu")


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
