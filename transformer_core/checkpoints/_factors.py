"""Matrices of a LoRA adapter for linear layers that compute it beside their weights, instead of merging it."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lang_core import CheckpointError, InputError, near_names
from transformer_core.checkpoints._adapted import candidate_names
from transformer_core.checkpoints._adapter import Adapter
from transformer_core.checkpoints._adapter_parts import AdapterPlace, Factors

_MERGE: Final = "merge it into a bundle instead (`export --adapter`)"
_SHOWN: Final = 4


def adapter_factors(
    adapter: Adapter, shapes: Mapping[str, tuple[int, int]], places: Mapping[str, AdapterPlace], rank: int
) -> dict[str, Factors]:
    """Returns the changes of weights by an adapter.

    Args:
        adapter: adapter.
        shapes: shape [out, in] of each weight that may change, by name.
        places: places of weights that are not stored under their own names, as they are.
        rank: greatest rank.

    Raises:
        InputError: the adapter changes other tensors, or in another way than by low-rank products, or has greater
            ranks.
        CheckpointError: it is of another model, or has NaN or infinity.
    """
    _check_kind(adapter)
    by_key: dict[str, list[tuple[str, AdapterPlace]]] = {}
    for name in shapes:
        place = places.get(name, AdapterPlace(name))
        by_key.setdefault(place.key, []).append((name, place))
    factors: dict[str, Factors] = {}
    unknown: list[str] = []
    for module, roles in adapter.low_rank.items():
        key = next((name for name in candidate_names(f"{module}.weight") if name in by_key), None)
        if key is None:
            unknown.append(f"{module}.weight")
            continue
        if adapter.ranks[module].rank > rank:
            raise InputError(
                f"adapter {adapter.path}: {module!r} has rank {adapter.ranks[module].rank}, and the bundle takes ranks "
                f"up to {rank}: export it with adapter_rank={adapter.ranks[module].rank}, or {_MERGE}"
            )
        whole = _read(adapter, module, roles)
        for name, place in by_key[key]:
            factors[name] = _part(adapter, module, whole, place, shapes[name])
    _refuse_unknown(adapter, unknown, by_key)
    return factors


def _check_kind(adapter: Adapter) -> None:
    if adapter.config.decomposed:
        raise InputError(
            f"adapter {adapter.path}: is a DoRA adapter (use_dora), which scales whole outputs: a server adds low-rank "
            f"products beside the weights alone: {_MERGE}"
        )
    others = [*adapter.replaced, *adapter.loaded, *adapter.rows]
    others += [f"{module}.bias" for module, roles in adapter.low_rank.items() if "bias" in roles]
    others += [f"{module}.weight" for module, roles in adapter.low_rank.items() if "left_columns" in roles]
    if others:
        raise InputError(
            f"adapter {adapter.path}: changes {_listed(others)}, which is no low-rank product of a linear layer: "
            f"{_MERGE}"
        )


def _refuse_unknown(adapter: Adapter, unknown: Sequence[str], known: Mapping[str, object]) -> None:
    if unknown:
        told = f": it was trained on {adapter.config.base!r}" if adapter.config.base else ""
        raise CheckpointError(
            f"adapter {adapter.path}: the bundle takes no adapter of {_listed(unknown)}"
            f"{near_names(unknown[0], list(known))}{told}. Linear layers of a decoder's layers take adapters, but "
            f"not experts: choose an adapter of this model, or {_MERGE}"
        )


def _read(adapter: Adapter, module: str, roles: Mapping[str, str]) -> Factors:
    right, left = (adapter.file.read(roles[role]).astype(np.float32) for role in ("right", "left"))
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        raise CheckpointError(
            f"adapter {adapter.path}: {module!r} has NaN or infinity: fetch it again, or train it anew"
        )
    return Factors(right, left * np.float32(adapter.ranks[module].scaling * adapter.weight))


def _part(adapter: Adapter, module: str, whole: Factors, place: AdapterPlace, shape: tuple[int, int]) -> Factors:
    """Returns the change of a weight that is a part of the adapted matrix."""
    left = whole.left
    if place.rows is not None:
        fits = max(last for _, last in place.rows) <= len(left)
        left = np.concatenate([left[first:last] for first, last in place.rows]) if fits else left
    if (len(left), whole.right.shape[1]) != shape:
        raise CheckpointError(
            f"adapter {adapter.path}: {module!r} is for a matrix of {len(whole.left)} outputs and "
            f"{whole.right.shape[1]} inputs, and the bundle's weight has shape {list(shape)}: choose an adapter of "
            f"this model"
        )
    return Factors(whole.right, left)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
