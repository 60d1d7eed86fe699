"""Element types: NumPy's, and bfloat16 from ml_dtypes, under the names StableHLO uses."""

from typing import Any, Final

import ml_dtypes
import numpy as np

from lang_core._errors import OpError, near_names


class DType:
    """Element type. There is one object per type: compare with ``is`` or ``==``.

    Attributes:
        name: name in options and files, e.g. ``"bf16"``.
        numpy: NumPy dtype.
        itemsize: bytes per element.
    """

    __slots__ = ("is_floating", "is_integer", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy: object, kind: str) -> None:
        self.name: Final = name
        self.numpy: Final = np.dtype(numpy)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.itemsize: Final = self.numpy.itemsize
        self.is_floating: Final = kind == "floating"
        self.is_integer: Final = kind == "integer"

    @property
    def accumulation(self) -> "DType":
        """Dtype in which sums, products and functions of elements are computed: f32 for f16 and bf16, else this one.

        One rounding of an f32 result to 16 bits equals 16-bit arithmetic for sums, products, quotients and roots
        (Figueroa 1995, "When is double rounding innocuous?").
        """
        return f32 if self.itemsize == 2 else self

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return as_dtype, (self.name,)


f16 = DType("f16", np.float16, "floating")
"""IEEE's floating dtype of 16 bits."""
bf16 = DType("bf16", ml_dtypes.bfloat16, "floating")
"""Floating dtype of 16 bits with the range of f32."""
f32 = DType("f32", np.float32, "floating")
"""IEEE's floating dtype of 32 bits."""
f64 = DType("f64", np.float64, "floating")
"""IEEE's floating dtype of 64 bits."""
i8 = DType("i8", np.int8, "integer")
"""Integer dtype of 8 bits."""
u8 = DType("u8", np.uint8, "integer")
"""Integer dtype of 8 bits without a sign."""
i32 = DType("i32", np.int32, "integer")
"""Integer dtype of 32 bits."""
i64 = DType("i64", np.int64, "integer")
"""Integer dtype of 64 bits."""
bool_ = DType("bool", np.bool_, "bool")
"""Dtype of truth values, a byte each."""

DTYPES: Final = (f16, bf16, f32, f64, i8, u8, i32, i64, bool_)
"""Dtypes of the table."""
DTYPE_ALIASES: Final = {
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "float32": "f32",
    "fp32": "f32",
}
"""Other names of dtypes in options, with ours."""
_BY_NAME: Final = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY: Final = {dtype.numpy: dtype for dtype in DTYPES}


def as_dtype(value: "DType | str | np.dtype") -> DType:
    """Returns the dtype of a name or of a NumPy dtype.

    Raises:
        OpError: the dtype does not exist.

    >>> as_dtype("bf16").itemsize
    2
    """
    if isinstance(value, DType):
        return value
    try:
        result = _BY_NAME.get(value) if isinstance(value, str) else _BY_NUMPY.get(value)
    except TypeError:  # such as a list
        result = None
    if result is None:
        names = ", ".join(_BY_NAME)
        raise OpError(f"unknown dtype {str(value)!r}: known are {names}{near_names(str(value), _BY_NAME)}")
    return result


def is_table_dtype(dtype: "np.dtype[Any]") -> bool:
    """Returns whether a NumPy dtype is one of the table's."""
    return dtype in _BY_NUMPY


def _promoted(a: DType, b: DType) -> DType | None:
    try:
        return _BY_NUMPY.get(np.result_type(a.numpy, b.numpy))
    except TypeError:  # NumPy knows no common type
        return None


_PROMOTION: Final = {(a, b): _promoted(a, b) for a in DTYPES for b in DTYPES}


def promote(a: DType, b: DType) -> DType | None:
    """Returns ``numpy.result_type(a, b)``, or None if that is not one of our dtypes.

    >>> promote(i32, f32), promote(bf16, f32), promote(i8, u8)
    (f64, f32, None)
    """
    return _PROMOTION[a, b]


def plain_bools(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array with bools as bytes of 0 and 1: a copy if there are others, as in bytes of a file or mask.

    NumPy takes every other byte for True; compilers take some of its bits.

    >>> plain_bools(np.array([0, 2], np.uint8).view(bool)).view(np.uint8).tolist()
    [0, 1]
    """
    if array.dtype.kind != "b" or not array.size:
        return array
    stored = array.view(np.uint8)
    return array if stored.max() <= 1 else np.asarray(stored != 0)
