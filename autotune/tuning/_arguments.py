"""Arguments of a tuned call: candidates run on copies of whatever they could write to."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.kernel import arrays_of, map_arrays
from autotune.tuning._agreement import disagreement
from lang_core import EagerTensor, ExecutionContext

Lent = tuple[tuple[Any, ...], dict[str, Any]]
Written = dict[int, np.ndarray[Any, Any]]


class Arguments:
    """Arguments of a call, lent to candidates as copies.

    Writable NumPy arrays, tensors that hold one, and dataclasses are copied; containers are rebuilt. Read-only arrays,
    arrays of JAX and contexts are shared. One copy serves all candidates until one of them writes to it.

    Args:
        args: positional arguments of the caller.
        kwargs: keyword arguments of the caller.
    """

    def __init__(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        self._own: Lent = tuple(args), dict(kwargs)
        self._copy: Lent | None = None
        self.values = (*self._own[0], *self._own[1].values())

    def lent(self) -> Lent:
        """Returns a copy of the arguments, in the state in which the caller gave them."""
        lent = self._copy
        if lent is None:
            lent = self._copy = _copied(self._own, {})
        return lent

    def renew(self) -> None:
        """Makes ``lent`` return a new copy."""
        self._copy = None

    def written(self) -> Written:
        """Returns the arrays that were written to since ``lent``, by their number among all arrays, and renews them."""
        before, after = (list(map(_data, arrays_of(tree))) for tree in (self._own, self._copy))
        pairs = enumerate(zip(after, before, strict=False))
        written = {
            number: new.copy()
            for number, (new, old) in pairs
            if new is not old and isinstance(new, np.ndarray) and not _same(new, old)
        }
        if written or _rearranged(self._own, self._copy):
            self.renew()
        return written


def other_effects(written: Written, reference: Written, tolerance: float | None, bit_exact: bool) -> str:
    """Returns the difference of a candidate's changes to its arguments from the reference's; empty if they agree."""
    if written.keys() != reference.keys():
        return f"writes to {_numbers(written)}, the reference writes to {_numbers(reference)}"
    for number, array in written.items():
        wrong = disagreement(array, reference[number], tolerance, bit_exact)
        if wrong:
            return f"its changes to argument array {number}: {wrong}"
    return ""


def _numbers(written: Written) -> str:
    names = ", ".join(map(str, written))
    return f"argument array{'s' * (len(written) > 1)} {names}" if written else "none"


def _copied(tree: Any, memo: dict[int, Any]) -> Any:
    """Returns a copy of a tree; an array that is in it twice is so in the copy."""
    if isinstance(tree, ExecutionContext):
        return tree
    if id(tree) in memo:
        return memo[id(tree)]
    if isinstance(tree, EagerTensor):
        made = memo[id(tree)] = EagerTensor(tree.spec, _copied(tree.data, memo))
        return made
    if isinstance(tree, np.ndarray):
        made = memo[id(tree)] = np.array(tree, copy=True, order="K", subok=True) if tree.flags.writeable else tree
        return made
    if isinstance(tree, Mapping | list | tuple):
        return _rebuilt(tree, memo)
    return copy.deepcopy(tree, memo) if _is_record(tree) else tree


def _rebuilt(tree: Any, memo: dict[int, Any]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _copied(value, memo) for key, value in tree.items()}
    parts = [_copied(part, memo) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def _rearranged(before: Any, after: Any) -> bool:
    """Returns whether a candidate may have changed a value other than an array.

    A container's values, a record's fields.
    """
    own, lent = _leaves(before), _leaves(after)
    others = ((a, b) for a, b in zip(own, lent, strict=False) if not arrays_of(a))
    return len(own) != len(lent) or any(a is not b or _is_record(a) for a, b in others)


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, Mapping):
        return [leaf for value in tree.values() for leaf in _leaves(value)]
    if isinstance(tree, list | tuple):
        return [leaf for value in tree for leaf in _leaves(value)]
    return [tree]


def _is_record(value: Any) -> bool:
    """Returns whether a value is an object with fields that a key may hold: a dataclass, or a model of pydantic."""
    return not isinstance(value, type) and (dataclasses.is_dataclass(value) or hasattr(value, "model_dump"))


def _data(array: Any) -> Any:
    return array.data if isinstance(array, EagerTensor) else array


def _same(new: np.ndarray[Any, Any], old: np.ndarray[Any, Any]) -> bool:
    """Returns whether two arrays have the same bits."""
    if new.shape != old.shape or new.dtype != old.dtype or new.dtype.hasobject:
        return False
    if new.flags.c_contiguous and old.flags.c_contiguous:
        return np.array_equal(new.reshape(-1).view(np.uint8), old.reshape(-1).view(np.uint8))
    return new.tobytes() == old.tobytes()


def detached(tree: Any) -> Any:
    """Returns a tree with copies of its NumPy arrays, because a candidate may return the same buffer again."""

    def copied(array: Any) -> Any:
        data = _data(array)
        return data.copy() if isinstance(data, np.ndarray) else data

    return map_arrays(copied, tree)
