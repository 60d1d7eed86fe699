"""A module whose caches are updated in place, as a portable artifact, and its session."""

from pathlib import Path
from typing import Any, Final

import jax.interpreters.mlir
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import MappingWeights, TensorSpec
from run_jax.sessions._session import Session

# append: cache[position] = 2 * row + w, and the sum of the new cache; clear: zeros; peek: reads a cache and a row.
TEXT: Final = """module @m {
  func.func public @append(%row: tensor<1x3xf32>, %position: tensor<i32>, %cache: tensor<4x3xf32>,
      %w: tensor<3xf32>, %unused: tensor<2xf32>) -> (tensor<f32>, tensor<4x3xf32>, tensor<1xi32>) {
    %twice = stablehlo.add %row, %row : tensor<1x3xf32>
    %w1 = stablehlo.reshape %w : (tensor<3xf32>) -> tensor<1x3xf32>
    %new = stablehlo.add %twice, %w1 : tensor<1x3xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %out = stablehlo.dynamic_update_slice %cache, %new, %position, %zero
      : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
    %init = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%out init: %init) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<4x3xf32>, tensor<f32>) -> tensor<f32>
    %id = stablehlo.reshape %position : (tensor<i32>) -> tensor<1xi32>
    return %sum, %out, %id : tensor<f32>, tensor<4x3xf32>, tensor<1xi32>
  }
  func.func public @peek(%cache: tensor<4x3xf32>, %rows: tensor<2x3xf32>, %w: tensor<3xf32>, %unused: tensor<2xf32>)
      -> tensor<2x4xf32> {
    %dot = stablehlo.dot_general %rows, %cache, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST]
      : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    return %dot : tensor<2x4xf32>
  }
}
"""

WEIGHTS: Final = {"w": np.array([10, 20, 30], np.float32), "unused": np.array([1, 2], np.float32)}
CACHE: Final = TensorSpec((4, 3), "f32")

APPEND: Final = Signature(
    "append",
    (
        LoweredArgument("row", TensorSpec((1, 3), "f32")),
        LoweredArgument("position", TensorSpec((), "i32"), "scalar", bounds=(0, 3)),
        LoweredArgument("cache", CACHE, alias_result="cache", in_place=True),
    ),
    (
        LoweredResult("sum", TensorSpec((), "f32")),
        LoweredResult("cache", CACHE),
        LoweredResult("id", TensorSpec((1,), "i32")),
    ),
)
PEEK: Final = Signature(
    "peek",
    (LoweredArgument("cache", CACHE), LoweredArgument("rows", TensorSpec((2, 3), "f32"))),
    (LoweredResult("dot", TensorSpec((2, 4), "f32")),),
)


def artifact_of(text: str, path: Path) -> Path:
    """Writes a module as a portable artifact and returns its path."""
    with jax.interpreters.mlir.make_ir_context():
        path.write_bytes(stablehlo.serialize_portable_artifact(ir.Module.parse(text), "1.0.0"))
    return path


def session_of(directory: Path, **options: Any) -> Session:
    """Opens the module."""
    options = {"signatures": (APPEND, PEEK), "weights": MappingWeights(WEIGHTS), "parameters": list(WEIGHTS)} | options
    return Session(artifact_of(TEXT, directory / "module.vhlo"), **options)
