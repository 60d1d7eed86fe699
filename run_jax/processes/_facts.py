"""Comparison of the facts that all ranks must share."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Facts = Mapping[str, Any]
"""Texts, numbers and lists of such by the name of what they are of."""

_ABSENT: Final = "nothing"


def first_difference(rank: int, facts: Facts, other: int, others: Facts) -> str | None:
    """Returns the first fact of which two ranks have two values, with both; None if they agree.

    Args:
        rank: number of the one rank.
        facts: facts of that rank.
        other: number of the other rank.
        others: facts of the other rank.

    >>> first_difference(0, {"jax": "0.10.2"}, 3, {"jax": "0.9"})
    "jax is '0.10.2' on rank 0, and '0.9' on rank 3"
    >>> first_difference(0, {"flags": ["--a=1", "--b=2"]}, 1, {"flags": ["--a=1", "--b=3"]})
    "flags has '--b=2' on rank 0, and '--b=3' on rank 1"
    """
    for name in (*facts, *(name for name in others if name not in facts)):
        ours, theirs = facts.get(name, _ABSENT), others.get(name, _ABSENT)
        if ours != theirs:
            return _told(name, rank, ours, other, theirs)
    return None


def _told(name: str, rank: int, ours: Any, other: int, theirs: Any) -> str:
    if _is_list(ours) and _is_list(theirs):
        at = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(ours), len(theirs)) if at is None else at
        pair = [repr(values[at]) if at < len(values) else _ABSENT for values in (ours, theirs)]
        return f"{name} has {pair[0]} on rank {rank}, and {pair[1]} on rank {other}"
    return f"{name} is {ours!r} on rank {rank}, and {theirs!r} on rank {other}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
