"""Specs of arrays, and keys of arguments: equal for calls that share a configuration, in any process."""

import dataclasses
import enum
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from autotune.kernel._errors import KernelError
from autotune.kernel._jax_arrays import is_jax
from lang_core import DType, ExecutionContext, Tensor

Shape = tuple[int, ...]
Bucket = Callable[[Shape], Shape]

_PLAIN: Final = (bool, int, str, type(None))


class ArraySpec(NamedTuple):
    """Shape and dtype of an array.

    Attributes:
        shape: dimensions.
        dtype: NumPy's name of the element type, such as ``float32`` or ``bfloat16``.
    """

    shape: Shape
    dtype: str

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def is_array(value: Any) -> bool:
    """Returns whether a value is an array of NumPy or JAX, a tensor of a context, or a spec of one of these."""
    return (
        isinstance(value, np.ndarray | np.generic | Tensor | ArraySpec) or is_jax(value) or _has_shape_and_dtype(value)
    )


def _has_shape_and_dtype(value: Any) -> bool:
    """Returns whether a value is a spec of another library, such as ``jax.ShapeDtypeStruct`` or ``TensorSpec``."""
    return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")


def spec_of(array: Any) -> ArraySpec:
    """Returns the spec of an array."""
    dtype = array.dtype
    name = dtype.numpy.name if isinstance(dtype, DType) else dtype if type(dtype) is str else np.dtype(dtype).name
    return ArraySpec(tuple(array.shape), name)


def map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    """Returns a tree of tuples, lists and mappings with a function applied to its arrays; other leaves stay."""
    if is_array(tree):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_arrays(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_arrays(function, part) for part in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map_arrays(function, part) for part in tree)
    return tree


def arrays_of(tree: Any) -> list[Any]:
    """Returns the arrays in a tree, in order."""
    arrays: list[Any] = []
    map_arrays(arrays.append, tree)
    return arrays


def abstractify(tree: Any) -> Any:
    """Returns the tree with specs in place of arrays."""
    return map_arrays(spec_of, tree)


def powers_of_two(shape: Shape) -> Shape:
    """Rounds each dimension above 16 up to a power of two: a bucket for shapes.

    >>> powers_of_two((3, 100, 128))
    (3, 128, 128)
    """
    return tuple(dim if dim <= 16 else 1 << (dim - 1).bit_length() for dim in shape)


def stable_json(value: Any) -> str:
    """Returns a text that is the same for equal values, in any process.

    Raises:
        KernelError: a value has no description that other processes understand.
    """
    return json.dumps(describe(value), sort_keys=True, separators=(",", ":"))


def short_hash(value: Any) -> str:
    """Returns 16 hexadecimal digits of the hash of a value's ``stable_json``."""
    return hashlib.sha256(stable_json(value).encode()).hexdigest()[:16]


def describe(value: Any) -> Any:
    """Returns a value as JSON values, different for different values.

    Raises:
        KernelError: another process would not understand a value of this type.
    """
    if isinstance(value, enum.Enum):  # first, because a member may also be a number or a string
        return {"enum": f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return {"float": value.hex() if value == value else "nan"}
    if isinstance(value, ExecutionContext):
        return {"context": ""}
    if isinstance(value, Mapping):
        return {"mapping": sorted(([describe(k), describe(v)] for k, v in value.items()), key=json.dumps)}
    if isinstance(value, np.dtype | DType):
        return {"dtype": value.name}
    if isinstance(value, type):
        return {"type": f"{value.__module__}.{value.__qualname__}"}
    if is_array(value):
        spec = spec_of(value)
        return {"array": [list(spec.shape), spec.dtype]}
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, list | tuple):
        return {name if hasattr(value, "_fields") else type(value).__name__: [describe(part) for part in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((describe(part) for part in value), key=json.dumps)}
    if isinstance(value, bytes | complex | range | slice):
        return {type(value).__name__: repr(value)}
    if dataclasses.is_dataclass(value):
        return {name: {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}}
    if isinstance(value, functools.partial):
        return {"partial": [describe(value.func), describe(value.args), describe(value.keywords)]}
    code = getattr(value, "__code__", None)
    if code is not None and not getattr(value, "__closure__", None):
        text = hashlib.sha256(code.co_code + repr(code.co_consts).encode()).hexdigest()[:16]
        return {"function": f"{value.__module__}.{value.__qualname__}", "code": text}
    if hasattr(value, "model_dump"):
        return {name: describe(value.model_dump())}
    raise KernelError(
        f"the argument {value!r} of type {name} cannot be part of a key that other processes understand: pass numbers, "
        f"strings, dtypes, tuples or dataclasses, or give the kernel a key_builder"
    )


def quick_key(value: Any) -> Any:
    """Returns a hashable value, equal only for arguments with the same description; quicker than ``describe``.

    Raises:
        TypeError: the value has none; use ``describe``.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value.shape, value.dtype
    if kind is tuple or kind is list:
        return (kind, *[quick_key(part) for part in value])
    if kind is int or kind is str or kind is bool or value is None:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is dict:
        return (dict, *[(key, quick_key(part)) for key, part in value.items()])
    if isinstance(value, Tensor):
        return Tensor, value.spec
    if is_jax(value):
        return kind, value.shape, value.dtype
    if isinstance(value, enum.Enum):  # members of two classes may be equal numbers
        return kind, value.name
    if isinstance(value, DType | np.dtype):
        return kind, value
    if isinstance(value, ExecutionContext):
        return None
    raise TypeError("no quick key")
