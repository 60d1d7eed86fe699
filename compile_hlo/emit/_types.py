"""StableHLO's spelling of types and values."""

import functools
import math
import re
from typing import Any, Final

import numpy as np

from lang_core import TensorSpec, as_dtype, bool_

ELEMENT_TYPES: Final = {"bool": "i1", "u8": "ui8"}
_DTYPES: Final = {element: name for name, element in ELEMENT_TYPES.items()}
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")  # what stands in a string as it is


@functools.lru_cache(maxsize=4096)
def tensor_type(spec: TensorSpec) -> str:
    """Returns the type of a spec.

    >>> tensor_type(TensorSpec((2, 3), "f32")), tensor_type(TensorSpec((), "bool"))
    ('tensor<2x3xf32>', 'tensor<i1>')
    """
    name = spec.dtype.name
    return f"tensor<{'x'.join([*map(str, spec.shape), ELEMENT_TYPES.get(name, name)])}>"


def spec_of(kind: str) -> TensorSpec:
    """Returns the spec of a type.

    >>> spec_of("tensor<2x3xi1>"), spec_of("tensor<f32>")
    (bool[2,3], f32[])
    """
    *dims, element = kind.removeprefix("tensor<").removesuffix(">").split("x")
    return TensorSpec(tuple(map(int, dims)), _DTYPES.get(element, element))


def dense(array: np.ndarray[Any, Any]) -> str:
    """Returns a dense attribute of exactly the array's elements, every bit of NaN included.

    >>> dense(np.array([1.5, 1.5], np.float32)), dense(np.array(np.nan, np.float32)), dense(np.array(-0.0))
    ('dense<1.5>', 'dense<0x7FC00000>', 'dense<-0.0>')
    >>> dense(np.array([1, -2], np.int8))
    'dense<"0x01FE">'
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size == 0:
        return "dense<>"
    if flat.size == 1 or _is_splat(flat):
        return f"dense<{_scalar(flat[0])}>"
    if flat.dtype == np.bool_:  # packed into bits in hexadecimal form: spell the elements out instead
        return f"dense<{_nested(array.tolist())}>"
    return f'dense<"0x{flat.tobytes().hex().upper()}">'


def _is_splat(flat: np.ndarray[Any, Any]) -> bool:
    bits = flat.view(f"u{flat.dtype.itemsize}")
    return bool((bits == bits[0]).all())


def _scalar(value: Any) -> str:
    dtype = as_dtype(value.dtype)
    if dtype is bool_:
        return "true" if value else "false"
    if not dtype.is_floating:
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        return f"0x{int(value.view(f'u{dtype.itemsize}')):0{2 * dtype.itemsize}X}"
    # The shortest decimal of the same double is exact for every narrower float; MLIR wants a point in it.
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"


def _nested(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_nested, values))}]"
    return "true" if values else "false"


def integers(values: tuple[int, ...]) -> str:
    """Returns a list of integers, as in ``dims = [0, 1]``."""
    return f"[{', '.join(map(str, values))}]"


def quoted(text: str) -> str:
    """Returns a string attribute."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(c if c.isprintable() and c not in '"\\' and c < "\x7f" else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in character.encode())


def unquoted(text: str) -> str:
    """Returns the argument of ``quoted``, without the quotes around.

    >>> unquoted(quoted('{"eps": 1}')[1:-1])
    '{"eps": 1}'
    """
    return re.sub(rb"\\([0-9A-F]{2})", lambda byte: bytes.fromhex(byte[1].decode()), text.encode()).decode()


def symbol(text: str) -> str:
    """Returns a symbol reference, quoted if it must be."""
    return f"@{text}" if re.match(r"[A-Za-z_][\w$.]*\Z", text, re.ASCII) else f"@{quoted(text)}"
