"""StableHLO modules on JAX's runtime."""

import doctest
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import run_jax
from lang_core import DeviceError, InputError, VerificationError
from run_jax import StableHloFunction

_MODULE = """module @m {
  func.func private @twice(%x: tensor<2x3xbf16>) -> tensor<2x3xbf16> {
    %y = stablehlo.add %x, %x : tensor<2x3xbf16>
    return %y : tensor<2x3xbf16>
  }
  func.func public @start(%x: tensor<2x3xbf16>, %n: tensor<i32>) -> (tensor<2x3xbf16>, tensor<i32>) {
    %y = call @twice(%x) : (tensor<2x3xbf16>) -> tensor<2x3xbf16>
    %m = stablehlo.multiply %n, %n : tensor<i32>
    return %y, %m : tensor<2x3xbf16>, tensor<i32>
  }
  func.func public @other(%b: tensor<ui8>, %l: tensor<4xi1>) -> tensor<4xi1> {
    return %l : tensor<4xi1>
  }
}
"""


def test_a_module_runs_on_jaxs_runtime(tmp_path: Path) -> None:
    x = np.array([[1, -2.5, np.inf], [0.5, 3e38, -0.0]], jnp.bfloat16)
    y, m = StableHloFunction(_MODULE, "start")(x, np.array(7, np.int32))
    assert y.tobytes() == np.array([[2, -5, np.inf], [1, np.inf, -0.0]], jnp.bfloat16).tobytes()
    assert (int(m), m.dtype) == (49, np.int32)
    (tmp_path / "m.mlir").write_text(_MODULE)
    (kept,) = StableHloFunction(tmp_path / "m.mlir", "other")(np.uint8(1), np.array([True, False, True, True]))
    assert kept.tolist() == [True, False, True, True]


def test_a_module_that_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"the module: function 'strat' not found; available: start, other; did you mean 'start'\?"
    ):
        StableHloFunction(_MODULE, "strat")
    with pytest.raises(InputError, match=r"has the functions start, other: choose one with name="):
        StableHloFunction(_MODULE)
    with pytest.raises(VerificationError, match=r"the module: not valid StableHLO: .*"):
        StableHloFunction("module {")
    with pytest.raises(VerificationError, match=r"the module: an argument of 'main': .*ui32"):
        StableHloFunction("func.func @main(%x: tensor<2xui32>) -> tensor<2xui32> { return %x : tensor<2xui32> }")
    with pytest.raises(InputError, match=r"no\.mlir: no such file"):
        StableHloFunction(tmp_path / "no.mlir")
    with pytest.raises(DeviceError, match=r"'start' takes .*\(2, 3\), dtype\(bfloat16\)\), .* found \[\(\(2,\)"):
        StableHloFunction(_MODULE, "start")(np.ones(2), np.array(7, np.int32))


def test_the_readme() -> None:
    results = doctest.testfile("README.md", package=run_jax)
    assert results.attempted
    assert not results.failed
