"""Every dtype on every device: round trips, sums and products; a module has a function for each dtype."""

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


def _turned(dtype: DType) -> str:
    name = {"bool": "i1", "u8": "ui8"}.get(dtype.name, dtype.name)
    return f"""func.func public @of_{dtype.name}(%x: tensor<3x5x{name}>) -> tensor<5x3x{name}> {{
      %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x5x{name}>) -> tensor<5x3x{name}>
      return %y : tensor<5x3x{name}>
    }}
"""


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_every_dtype_makes_the_round_trip(device: str, dtype: DType, tmp_path: Path) -> None:
    text = "".join(map(_turned, DTYPES))
    x = _values(dtype, (3, 5))
    with Session(compiled(text, device, tmp_path), device) as session:
        turned = session.function(f"of_{dtype.name}")
        (y,) = turned(x)
        back = y.numpy()
        assert (back.dtype, back.tobytes()) == (dtype.numpy, x.T.tobytes())
        assert back.flags.writeable
        (again,) = turned(session.upload(x[:, ::-1]))
        assert again.numpy().tobytes() == x[:, ::-1].T.tobytes()


def _skip_half_arithmetic_of_vmvx(device: str, dtype: DType) -> None:
    if device == "vmvx" and dtype in (f16, bf16):
        pytest.skip(f"IREE's vmvx does not compile {dtype} arithmetic; _compile_test shows the error that a user gets")


def _added(dtype: DType) -> str:
    name = _MLIR_NAMES.get(dtype, dtype.name)
    op = "and" if dtype is bool_ else "add"
    kind = f"tensor<3x5x{name}>"
    return f"""func.func public @of_{dtype.name}(%x: {kind}, %y: {kind}) -> {kind} {{
      %z = stablehlo.{op} %x, %y : {kind}
      return %z : {kind}
    }}
"""


@pytest.mark.parametrize("dtype", _COMPUTED, ids=repr)
def test_every_dtype_is_computed_with(device: str, dtype: DType, tmp_path: Path) -> None:
    _skip_half_arithmetic_of_vmvx(device, dtype)
    text = "".join(_added(one) for one in _COMPUTED if device != "vmvx" or one not in (f16, bf16))
    x = _values(dtype, (3, 5))
    y = np.ascontiguousarray(x[::-1])
    with Session(compiled(text, device, tmp_path), device) as session:
        (z,) = session.function(f"of_{dtype.name}")(x, y)
        np.testing.assert_array_equal(z.numpy(), x & y if dtype is bool_ else x + y)


def _multiplied(dtype: DType) -> str:
    name, wide = dtype.name, "f64" if dtype is f64 else "f32" if dtype.is_floating else "i32"
    wide = "i64" if dtype.name == "i64" else wide
    return f"""
  util.global private @w_{name} = #flow.parameter.named<"model"::"w_{name}"> : tensor<48x37x{name}>
  func.func public @of_{name}(%x: tensor<1x37x{name}>) -> tensor<1x48x{wide}> {{
    %w = util.global.load @w_{name} : tensor<48x37x{name}>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<1x37x{name}>, tensor<48x37x{name}>) -> \
tensor<1x48x{wide}>
    return %y : tensor<1x48x{wide}>
  }}
"""


_MULTIPLIED = tuple(dtype for dtype in _COMPUTED if dtype is not bool_)


@pytest.mark.parametrize("dtype", _MULTIPLIED, ids=repr)
def test_a_matvec_over_narrow_weights_is_right(device: str, dtype: DType, tmp_path: Path) -> None:
    if dtype is f16:
        _skip_half_arithmetic_of_vmvx(device, dtype)
    dtypes = [one for one in _MULTIPLIED if device != "vmvx" or one is not f16]
    text = f"module @m {{{''.join(map(_multiplied, dtypes))}}}"
    rng = np.random.default_rng(7)
    integers, given = (rng.integers(-9, 9, shape) for shape in ((48, 37), (1, 37)))
    w, x = integers.astype(dtype.numpy), given.astype(dtype.numpy)
    stored = {f"w_{one.name}": integers.astype(one.numpy) for one in dtypes}
    weights = archive(tmp_path, {name: w.view(np.uint16) if name == "w_bf16" else w for name, w in stored.items()})
    with Session(compiled(text, device, tmp_path), device, parameters=weights) as session:
        (y,) = session.function(f"of_{dtype.name}")(x)
        np.testing.assert_array_equal(y.numpy().astype(np.int64), x.astype(np.int64) @ w.astype(np.int64).T)
