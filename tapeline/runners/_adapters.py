"""LoRA adapters of a bundle on a device: tables of their matrices, which calls of rows with adapters take."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lang_core import InputError, TensorSpec
from runtime import Session, Tensor
from tapeline.bundle import Bundle
from transformer_core import ADAPTED, ADAPTER_TABLES
from transformer_core.checkpoints import AdapterPlace, Factors

FIELD: Final = "adapters"
"""Field of a bundle's model: the tables."""


class AdapterTables:
    """Tables of the matrices of adapters, by number from 1 on. ``put`` and calls may run in different threads.

    Attributes:
        count: number of adapters.
        rank: greatest rank of an adapter.
        shapes: shapes [out, in] of the weights that adapters may change, by name.
        places: places of weights that adapters know by other names.
    """

    def __init__(self, session: Session, specs: Mapping[str, TensorSpec], described: Mapping[str, Any]) -> None:
        """Begins without adapters.

        Args:
            session: the bundle's session.
            specs: specs of an adapter's tables, in the order of the arguments.
            described: field ``adapters`` of the bundle's model.
        """
        self._session: Final = session
        self._specs: Final = specs
        self._weights: Final[Mapping[str, Sequence[str]]] = described["tables"]
        self.count: Final[int] = described["count"]
        self.rank: Final[int] = described["rank"]
        self._tensors: Final[dict[int, tuple[Tensor, ...]]] = {}
        places: Mapping[str, Mapping[str, Any] | None] = described["places"]
        refused = {name for name, place in places.items() if place is None}
        self.places: Final = {
            name: AdapterPlace.from_dict(place) for name, place in places.items() if place is not None
        }
        self.shapes: Final = {
            weight: (specs[f"{name}.b"].shape[1], specs[f"{name}.a"].shape[2])
            for name, weights in self._weights.items()
            for weight in weights
            if weight not in refused
        }

    def put(self, number: int, factors: Mapping[str, Factors]) -> None:
        """Makes an adapter's matrices those of a number. No row may have the number meanwhile.

        Args:
            number: from 1 to ``count``.
            factors: low-rank change of each weight, by name; other weights do not change. Empty frees the memory.

        Raises:
            InputError: there is no such number.
        """
        if not 1 <= number <= self.count:
            raise InputError(f"adapter number {number}: expected 1 to {self.count}")
        self._tensors.pop(number, None)
        if not factors:
            return
        tensors: list[Tensor] = []
        for name, spec in self._specs.items():
            kind, side = name.rpartition(".")[::2]
            table = np.zeros(spec.shape, spec.dtype.numpy)
            for place, weight in enumerate(self._weights[kind]):
                if weight in factors:
                    matrix = factors[weight].right if side == "a" else factors[weight].left
                    table[place, : matrix.shape[0], : matrix.shape[1]] = matrix
            tensors.append(self._session.upload(table))
        self._tensors[number] = tuple(tensors)

    def arguments(self, numbers: Sequence[int]) -> list[Tensor]:
        """Returns tables [layers, R, in] and [layers, out, R'] of each row of a call; rows at rest (0) take another's.

        Raises:
            InputError: an adapter was not put.
        """
        other = next(number for number in numbers if number)
        absent = [number for number in numbers if number and number not in self._tensors]
        if absent:
            raise InputError(f"adapter number {absent[0]} has no matrices: put some first")
        return [tensor for number in numbers for tensor in self._tensors[number or other]]


def adapter_tables(bundle: Bundle, session: Session) -> AdapterTables | None:
    """Returns the tables of a bundle, without adapters; None if it takes none."""
    described = bundle.config.model.get(FIELD)
    return None if described is None else AdapterTables(session, table_specs(bundle), described)


def adapter_bytes(bundle: Bundle) -> int:
    """Returns the memory of as many adapters as a bundle takes; 0 if it takes none."""
    count: int = bundle.config.model.get(FIELD, {}).get("count", 0)
    return count * sum(spec.nbytes for spec in table_specs(bundle).values())


def table_specs(bundle: Bundle) -> dict[str, TensorSpec]:
    """Returns the specs of one adapter's tables, by name; none if the bundle takes no adapters."""
    point = next((point for point in bundle.config.entry_points if point.name.startswith(ADAPTED)), None)
    first = f"{ADAPTER_TABLES}0."
    arguments = () if point is None else point.arguments
    return {one.name.removeprefix(first): one.spec for one in arguments if one.name.startswith(first)}
