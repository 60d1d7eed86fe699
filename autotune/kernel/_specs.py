"""What of a call's arguments decides about a configuration: specs of arrays, values of all else."""

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
    """Shape and dtype of an array, without data.

    Attributes:
        shape: its dimensions.
        dtype: NumPy's name for the element type, such as ``float32`` or ``bfloat16``.
    """

    shape: Shape
    dtype: str

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def is_array(value: Any) -> bool:
    """Whether a value is an array of any kind: NumPy's, a tensor of a context, JAX's, or the spec of one."""
    return isinstance(value, np.ndarray | np.generic | Tensor | ArraySpec) or is_jax(value) or _looks_like_one(value)


def _looks_like_one(value: Any) -> bool:
    """Such as ``jax.ShapeDtypeStruct`` or a ``TensorSpec``."""
    return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")


def spec_of(array: Any) -> ArraySpec:
    """The spec of an array."""
    dtype = array.dtype
    name = dtype.numpy.name if isinstance(dtype, DType) else dtype if type(dtype) is str else np.dtype(dtype).name
    return ArraySpec(tuple(array.shape), name)


def map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    """Tuples, lists, mappings and what is in them, with each array replaced; all else stays."""
    if is_array(tree):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_arrays(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_arrays(function, each) for each in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map_arrays(function, each) for each in tree)
    return tree


def arrays_of(tree: Any) -> list[Any]:
    """The arrays in a tree, in order."""
    found: list[Any] = []
    map_arrays(found.append, tree)
    return found


def abstractify(tree: Any) -> Any:
    """The tree with specs in place of arrays."""
    return map_arrays(spec_of, tree)


def powers_of_two(shape: Shape) -> Shape:
    """A bucket for shapes: each dimension above 16 rounded up to a power of two.

    >>> powers_of_two((3, 100, 128))
    (3, 128, 128)
    """
    return tuple(dim if dim <= 16 else 1 << (dim - 1).bit_length() for dim in shape)


def stable_json(value: Any) -> str:
    """Text that is the same for equal values, in any process.

    Raises:
        KernelError: a value's meaning cannot be told from outside.
    """
    return json.dumps(describe(value), sort_keys=True, separators=(",", ":"))


def short_hash(value: Any) -> str:
    """16 hexadecimal digits of a value's ``stable_json``."""
    return hashlib.sha256(stable_json(value).encode()).hexdigest()[:16]


def describe(value: Any) -> Any:
    """What JSON can hold of a value; different values have different descriptions."""
    if isinstance(value, enum.Enum):  # before numbers and strings, which a member may be, too
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
        return {name if hasattr(value, "_fields") else type(value).__name__: [describe(each) for each in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((describe(each) for each in value), key=json.dumps)}
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
        f"{value!r} of type {name} is an argument of a kernel, and its value cannot be part of a key that other "
        f"processes understand: pass numbers, strings, dtypes, tuples, dataclasses, or give the kernel a key_builder"
    )


def quick_key(value: Any) -> Any:
    """A hashable value that is the same for calls with the same key; a quick way to recognise one.

    Raises:
        TypeError: there is none, and the long way is to be taken.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value.shape, value.dtype
    if kind is tuple or kind is list:
        return (kind, *[quick_key(each) for each in value])
    if kind is int or kind is str or kind is bool or value is None:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is dict:
        return (dict, *[(key, quick_key(each)) for key, each in value.items()])
    if isinstance(value, Tensor):
        return Tensor, value.spec
    if is_jax(value):
        return kind, value.shape, value.dtype
    if isinstance(value, enum.Enum):  # of two classes, members that are numbers may be equal
        return kind, value.name
    if isinstance(value, DType | np.dtype):
        return kind, value
    if isinstance(value, ExecutionContext):
        return None
    raise TypeError("no quick key")
