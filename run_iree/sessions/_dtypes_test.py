"""Every dtype on every device: round trips, sums and products."""

from pathlib import Path

import numpy as np
import pytest

from lang_core import DTYPES, DType, bf16, bool_, f16, f64
from run_iree._device_testing import archive, compiled, device_params
from run_iree.sessions._session import Session


@pytest.fixture(scope="module", params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


_MLIR_NAMES = {bool_: "i1"}
_COMPUTED = tuple(dtype for dtype in DTYPES if dtype.name != "u8")


def _values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    data = np.random.default_rng(5).integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype is bool_:
        data &= 1
    if dtype.is_floating:
        return np.random.default_rng(5).standard_normal(shape).astype(dtype.numpy)
    return data.view(dtype.numpy).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_every_dtype_makes_the_round_trip(device: str, dtype: DType, tmp_path: Path) -> None:
    name = {"bool": "i1", "u8": "ui8"}.get(dtype.name, dtype.name)
    text = f"""func.func public @main(%x: tensor<3x5x{name}>) -> tensor<5x3x{name}> {{
      %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x5x{name}>) -> tensor<5x3x{name}>
      return %y : tensor<5x3x{name}>
    }}"""
    x = _values(dtype, (3, 5))
    with Session(compiled(text, device, tmp_path), device) as session:
        (y,) = session.function("main")(x)
        back = y.numpy()
        assert (back.dtype, back.tobytes()) == (dtype.numpy, x.T.tobytes())
        assert back.flags.writeable
        (again,) = session.function("main")(session.upload(x[:, ::-1]))
        assert again.numpy().tobytes() == x[:, ::-1].T.tobytes()


def _skip_half_arithmetic_of_vmvx(device: str, dtype: DType) -> None:
    if device == "vmvx" and dtype in (f16, bf16):
        pytest.skip(f"IREE's vmvx does not compile {dtype} arithmetic; _compile_test shows the error that a user gets")


@pytest.mark.parametrize("dtype", _COMPUTED, ids=repr)
def test_every_dtype_is_computed_with(device: str, dtype: DType, tmp_path: Path) -> None:
    _skip_half_arithmetic_of_vmvx(device, dtype)
    name = _MLIR_NAMES.get(dtype, dtype.name)
    op = "and" if dtype is bool_ else "add"
    text = f"""func.func public @main(%x: tensor<3x5x{name}>, %y: tensor<3x5x{name}>) -> tensor<3x5x{name}> {{
      %z = stablehlo.{op} %x, %y : tensor<3x5x{name}>
      return %z : tensor<3x5x{name}>
    }}"""
    x = _values(dtype, (3, 5))
    y = np.ascontiguousarray(x[::-1])
    with Session(compiled(text, device, tmp_path), device) as session:
        (z,) = session.function("main")(x, y)
        np.testing.assert_array_equal(z.numpy(), x & y if dtype is bool_ else x + y)


@pytest.mark.parametrize("dtype", [dtype for dtype in _COMPUTED if dtype is not bool_], ids=repr)
def test_a_matvec_over_narrow_weights_is_right(device: str, dtype: DType, tmp_path: Path) -> None:
    if dtype is f16:
        _skip_half_arithmetic_of_vmvx(device, dtype)
    name, wide = dtype.name, "f64" if dtype is f64 else "f32" if dtype.is_floating else "i32"
    wide = "i64" if dtype.name == "i64" else wide
    text = f"""module @m {{
  util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<48x37x{name}>
  func.func public @main(%x: tensor<1x37x{name}>) -> tensor<1x48x{wide}> {{
    %w = util.global.load @w : tensor<48x37x{name}>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<1x37x{name}>, tensor<48x37x{name}>) -> \
tensor<1x48x{wide}>
    return %y : tensor<1x48x{wide}>
  }}
}}"""
    rng = np.random.default_rng(7)
    w, x = (rng.integers(-9, 9, shape).astype(dtype.numpy) for shape in ((48, 37), (1, 37)))
    weights = archive(tmp_path, {"w": w.view(np.uint16) if dtype is bf16 else w})
    with Session(compiled(text, device, tmp_path), device, parameters=weights) as session:
        (y,) = session.function("main")(x)
        np.testing.assert_array_equal(y.numpy().astype(np.int64), x.astype(np.int64) @ w.astype(np.int64).T)
