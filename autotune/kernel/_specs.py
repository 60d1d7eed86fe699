"""Specs of arrays, alone and in trees of arguments."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from autotune.kernel._jax_arrays import is_jax
from lang_core import DType, Tensor

Shape = tuple[int, ...]
Bucket = Callable[[Shape], Shape]

# Kinds of NumPy's scalars that are texts or objects: values of their own, not arrays of numbers.
_NO_NUMBERS: Final = "USO"


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
    if isinstance(value, np.generic):
        return value.dtype.kind not in _NO_NUMBERS
    return isinstance(value, np.ndarray | Tensor | ArraySpec) or is_jax(value) or _has_shape_and_dtype(value)


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


def aligned(tree: Any, like: Any) -> Any:
    """Returns a tree with the keys of its mappings in the order of another tree's; other differences stay."""
    if isinstance(tree, Mapping) and isinstance(like, Mapping):
        if tree.keys() != like.keys():
            return tree
        return {key: aligned(tree[key], other) for key, other in like.items()}
    if not isinstance(tree, list | tuple) or not isinstance(like, list | tuple) or len(tree) != len(like):
        return tree
    parts = [aligned(part, other) for part, other in zip(tree, like, strict=True)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def abstractify(tree: Any) -> Any:
    """Returns the tree with specs in place of arrays."""
    return map_arrays(spec_of, tree)


def powers_of_two(shape: Shape) -> Shape:
    """Rounds each dimension above 16 up to a power of two: a bucket for shapes.

    >>> powers_of_two((3, 100, 128))
    (3, 128, 128)
    """
    return tuple(dim if dim <= 16 else 1 << (dim - 1).bit_length() for dim in shape)
