"""Types and bounds of the values in ``kernel_config.json``, checked before any of them is used."""

import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from lang_core import TensorSpec

MOST_SIZE: Final = 2**31 - 1
"""Largest size of a model, such as its vocabulary or context."""
MOST_DIMENSION: Final = 1 << 48
"""Largest dimension of a tensor."""
MOST_RANK: Final = 32
"""Most dimensions of a tensor."""
_MOST_BYTES: Final = 1 << 62  # of a tensor
_MOST_INTEGER: Final = 1 << 64
_LONGEST_HASH: Final = 128
_MOST_ROWS: Final = 1 << 20
_ROWS: Final = frozenset({"slots", "pages", "batch"})
_SIZES: Final = frozenset(
    "batch max_sequence vocabulary slots pages page_tokens image_tokens layers labels".split()
)  # those that are read; a family outside of this tree writes others as it likes
_OBJECTS: Final = ("rope", "local_rope", "pooling", "source")


def spec_of(entry: Mapping[str, Any]) -> TensorSpec:
    """Returns the spec of an entry with ``shape`` and ``dtype``.

    Raises:
        TypeError: a dimension is not an integer, or exceeds its bound; also ValueError, KeyError or TapelineError.
    """
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > MOST_RANK:
        raise TypeError(f"shape {shape!r:.80}: expected a list of up to {MOST_RANK} integers")
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= MOST_DIMENSION:
            raise ValueError(f"shape {shape!r:.80}: expected integers from 0 to {MOST_DIMENSION}")
    if math.prod(max(dim, 1) for dim in shape) > _MOST_BYTES:
        raise ValueError(f"shape {shape!r:.80}: expected {_MOST_BYTES} elements at most")
    if not isinstance(entry["dtype"], str):
        raise TypeError(f"dtype {entry['dtype']!r:.80}: expected a name")
    return TensorSpec(tuple(shape), entry["dtype"])


def check_values(fields: Mapping[str, Any]) -> None:
    """Checks hashes, targets, the model and every integer.

    Raises:
        TypeError: a value has another type; ValueError: it is beyond its bound. The message names the field.
    """
    for name, digest in fields["sha256"].items():
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise ValueError(f"sha256: {name!r:.80} is no path of a file in the bundle")
        if not isinstance(digest, str) or len(digest) > _LONGEST_HASH:
            raise TypeError(f"sha256: {name!r:.80}: expected a hash; found {digest!r:.80}")
    for name, target in fields["targets"].items():
        _check_target(target, f"targets.{name:.40}")
    _check_model(fields["model"])
    for place, number in _integers(fields):
        if abs(number) > _MOST_INTEGER:
            raise ValueError(f"{place}: expected an integer of up to 64 bits; found {number!r:.80}")


def check_bounds(bounds: Any, name: str) -> tuple[int, int]:
    """Returns the bounds of a scalar argument.

    Raises:
        TypeError: they are not two integers in ascending order.
    """
    if not isinstance(bounds, list) or len(bounds) != 2 or any(type(bound) is not int for bound in bounds):
        raise TypeError(f"argument {name!r:.80}: bounds {bounds!r:.80}: expected two integers")
    least, most = bounds
    if not -MOST_SIZE - 1 <= least <= most <= MOST_SIZE:
        raise ValueError(f"argument {name!r:.80}: bounds {bounds!r:.80}: expected integers of 32 bits in order")
    return least, most


def _check_target(target: Any, place: str) -> None:
    cpu = _object(target, place).get("cpu")
    _object(target.get("schedule", {}), f"{place}.schedule")
    if cpu is None:
        return
    _object(cpu, f"{place}.cpu")
    for name in ("target", "name"):
        if not isinstance(cpu.get(name, ""), str | None):
            raise TypeError(f"{place}.cpu.{name}: expected a text; found {cpu[name]!r:.80}")
    features = cpu.get("features", [])
    if not isinstance(features, list) or not all(isinstance(feature, str) for feature in features):
        raise TypeError(f"{place}.cpu.features: expected a list of names; found {features!r:.80}")


def _check_model(model: Mapping[str, Any]) -> None:
    for name in _SIZES & model.keys():
        size = model[name]
        most = _MOST_ROWS if name in _ROWS else MOST_SIZE
        if size is not None and (type(size) is not int or not 0 <= size <= most):
            raise ValueError(f"model.{name}: expected an integer from 0 to {most}; found {size!r:.80}")
    for name in _OBJECTS:
        if model.get(name) is not None:
            _object(model[name], f"model.{name}")
    for name in ("rope", "local_rope"):
        scaling = (model.get(name) or {}).get("scaling")
        if scaling is not None:
            _object(scaling, f"model.{name}.scaling")


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{place}: expected an object; found {value!r:.80}")
    return value


def _integers(value: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """Yields the integers of a tree with their places."""
    left: list[tuple[str, Any]] = [(place, value)]
    while left:
        where, one = left.pop()
        if type(one) is int:
            yield where, one
        elif isinstance(one, dict):
            left += [(f"{where}.{key:.40}" if where else f"{key:.40}", inner) for key, inner in one.items()]
        elif isinstance(one, list):
            left += [(where, inner) for inner in one]
