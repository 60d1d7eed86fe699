"""Mutants of the op table: shape rules, constraints that are not checked, and eager rules."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from lang_core import OPS, Op, TensorSpec
from tests.mutation._mutant import Mutant, Replaced

_LEAVES: Final = ("parameter",)
Specs = tuple[TensorSpec, ...]


class _Afresh(Replaced):
    """A change of an op that also drops what the op remembers."""

    def __init__(self, op: Op, *changes: tuple[Any, str, Any]) -> None:
        super().__init__(changes)
        self._memo: Any = op._memo

    def __enter__(self) -> None:
        self._memo.clear()
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._memo.clear()


def _shorter(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape[:-1], spec.dtype)


def _turned(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape[::-1], spec.dtype)


def _larger(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(tuple(dim + 1 for dim in spec.shape), spec.dtype)


def _deeper(spec: TensorSpec) -> TensorSpec:
    return TensorSpec((*spec.shape, 1), spec.dtype)


def _other_dtype(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape, "f32" if spec.dtype.name == "f64" else "f64")


_SPECS: Final[dict[str, Callable[[TensorSpec], TensorSpec]]] = {
    "the last axis goes": _shorter,
    "axes are turned round": _turned,
    "every axis is longer": _larger,
    "an axis comes": _deeper,
    "another dtype": _other_dtype,
}


def shape_mutants() -> Iterator[Mutant]:
    """Every shape rule gives something else."""
    for name, op in OPS.items():
        if name in _LEAVES:
            continue
        for what, change in _SPECS.items():
            rule = functools.partial(_changed_specs, op.shape_rule, change)
            applied = functools.partial(_Afresh, op, (op, "shape_rule", rule))
            yield Mutant(f"shape/{name}/{what}", applied, (f"interpreter_agrees_with_eager[{name}-",))


def _changed_specs(rule: Callable[..., Specs], change: Callable[[TensorSpec], TensorSpec], *args: Any) -> Specs:
    return tuple(map(change, rule(*args)))


def constraint_mutants() -> Iterator[Mutant]:
    """Every constraint is not checked."""
    for name, op in OPS.items():
        for number in range(1, len(op.constraints) + 1):
            label = f"{name}_c{number}"
            tests = (f"test_{label}", f"_c{number}[{name}]")
            yield Mutant(f"constraint/{name}/c{number} is not checked", functools.partial(_unchecked, op, label), tests)


def _unchecked(op: Op, label: str) -> Replaced:
    """The functions that check constraints let one pass."""
    rule: Any = op.shape_rule
    places = [rule.__globals__]
    places += [
        places[0][name].__globals__ for name in ("require_axis", "require_axes", "promoted_dtype") if name in places[0]
    ]
    changes: list[tuple[Any, str, Any]] = []
    for place in {id(place): place for place in places}.values():
        for name in ("require", "broadcast_shapes"):
            if name in place:
                changes.append((place, name, functools.partial(_lenient, place[name], label)))
    return _Afresh(op, *changes)


def _lenient(check: Callable[..., Any], ignored: str, condition: Any, label: str, *values: str) -> Any:
    if label != ignored:
        return check(condition, label, *values)
    return max(condition, key=len) if isinstance(condition, tuple) and condition else None


def _with_zeros_for_nan(x: Any) -> Any:
    return np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf).astype(x.dtype)


def _without_infinities(x: Any) -> Any:
    return np.where(np.isinf(x), np.ones_like(x), x)


def _next(x: Any) -> Any:
    """One unit in the last place off in f64; in others the least that can be told: a half in 256."""
    if x.dtype.kind == "b":
        return ~x
    if x.dtype.kind in "iu":
        return x + np.ones((), x.dtype)
    return (x.astype(np.float64) * (1 + 2.0**-5)).astype(x.dtype)


def _flipped(x: Any) -> Any:
    return np.flip(x).copy()


def _negated(x: Any) -> Any:
    return ~x if x.dtype.kind == "b" else np.negative(x)


def _one_wrong(x: Any) -> Any:
    """Only the last element is wrong."""
    if not x.size:
        return x
    copied = np.array(x, order="C")
    flat = copied.reshape(-1)
    flat[-1:] = _next(flat[-1:]) if x.dtype.kind in "iub" else flat[-1:] * 0 + 77
    return copied


_ARRAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "slightly more": _next,
    "the elements turned round": _flipped,
    "negated": _negated,
    "the last element wrong": _one_wrong,
    "NaN is 0": _with_zeros_for_nan,
    "infinities are 1": _without_infinities,
}
_FLOATS_ONLY: Final = ("NaN is 0", "infinities are 1")
# Their results are no floats.
_NEVER_FLOATS: Final = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "any",
    "all",
    "iota",
    "quotient",
)


def eager_mutants() -> Iterator[Mutant]:
    """Every eager rule gives something else, or takes its operands the other way round."""
    for name, op in OPS.items():
        if name in _LEAVES:
            continue
        tests = (f"eager_agrees_with_jax[{name}]", f"interpreter_agrees_with_eager[{name}-", f"test_rule_of_{name}")
        bools = "any" in name or "all" in name or name.startswith(("logical", "bitwise", "shift"))
        for what, change in _ARRAYS.items():
            if what in _FLOATS_ONLY and (bools or name in _NEVER_FLOATS or name.startswith("arg")):
                continue
            rule = functools.partial(_changed_arrays, op.eager_rule, change, what in _FLOATS_ONLY)
            yield Mutant(f"eager/{name}/{what}", functools.partial(Replaced, [(op, "eager_rule", rule)]), tests)
        swapped = functools.partial(_swapped, op.eager_rule)
        if name not in _COMMUTATIVE and not op.attributes and name not in _ONE_OPERAND:
            applied = functools.partial(Replaced, [(op, "eager_rule", swapped)])
            yield Mutant(f"eager/{name}/operands swapped", applied, tests)


_COMMUTATIVE: Final = frozenset(
    "add mul maximum minimum equal not_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor".split()
)
_ONE_OPERAND: Final = frozenset(
    name for name, op in OPS.items() if len(op.constraints) == 1 and "broadcast" not in op.constraints[0]
)


def _changed_arrays(rule: Callable[..., Any], change: Callable[[Any], Any], floats: bool, *args: Any) -> Any:
    def changed(x: Any) -> Any:
        array = np.asarray(x)
        return change(array) if not floats or array.dtype.kind in "fV" else array

    results = rule(*args)
    return tuple(map(changed, results)) if isinstance(results, tuple) else changed(results)


def _swapped(rule: Callable[..., Any], *operands: Any) -> Any:
    """The last two change places."""
    *first, x, y = operands
    return rule(*first, y, x)
