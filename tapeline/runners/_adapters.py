"""LoRA adapters of a bundle on a device: tables of their matrices, which calls of adapted rows take."""

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
        tensors: the tables on the device, in the order of the entry points' arguments.
        shapes: shapes [out, in] of the weights that adapters may change, by name.
        places: places of weights that adapters know by other names.
    """

    def __init__(self, session: Session, specs: Mapping[str, TensorSpec], described: Mapping[str, Any]) -> None:
        """Makes tables of zeros.

        Args:
            session: the bundle's session.
            specs: specs of the tables, in the order of the arguments.
            described: field ``adapters`` of the bundle's model.
        """
        self._session: Final = session
        self._specs: Final = specs
        self._weights: Final[Mapping[str, Sequence[str]]] = described["tables"]
        self.count: Final[int] = described["count"]
        self.rank: Final[int] = described["rank"]
        self.tensors: tuple[Tensor, ...] = tuple(session.zeros(spec) for spec in specs.values())
        places: Mapping[str, Mapping[str, Any] | None] = described["places"]
        refused = {name for name, place in places.items() if place is None}
        self.places: Final = {
            name: AdapterPlace.from_dict(place) for name, place in places.items() if place is not None
        }
        self.shapes: Final = {
            weight: (specs[f"{ADAPTER_TABLES}{name}.b"].shape[2], specs[f"{ADAPTER_TABLES}{name}.a"].shape[3])
            for name, weights in self._weights.items()
            for weight in weights
            if weight not in refused
        }

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return sum(spec.nbytes for spec in self._specs.values())

    def put(self, number: int, factors: Mapping[str, Factors]) -> None:
        """Makes an adapter's matrices those of a number. No row may have the number meanwhile.

        Args:
            number: from 1 to ``count``.
            factors: low-rank change of each weight, by name; other weights do not change.

        Raises:
            InputError: there is no such number.
        """
        if not 1 <= number <= self.count:
            raise InputError(f"adapter number {number}: expected 1 to {self.count}")
        tensors: list[Tensor] = []
        for name, tensor in zip(self._specs, self.tensors, strict=True):
            table, side = name.removeprefix(ADAPTER_TABLES).rpartition(".")[::2]
            array = tensor.numpy()
            array[:, number - 1] = 0
            for place, weight in enumerate(self._weights[table]):
                if weight in factors:
                    _fill(array[place, number - 1], factors[weight], side)
            tensors.append(self._session.upload(array))
        self.tensors = tuple(tensors)


def _fill(part: np.ndarray, factors: Factors, side: str) -> None:
    """Writes A [R, in] or B [out, R'] of one weight in a table; further ranks are 0."""
    matrix = factors.right if side == "a" else factors.left
    part[: matrix.shape[0], : matrix.shape[1]] = matrix


def adapter_tables(bundle: Bundle, session: Session) -> AdapterTables | None:
    """Returns empty tables of a bundle; None if it takes no adapters."""
    described = bundle.config.model.get(FIELD)
    if described is None:
        return None
    return AdapterTables(session, table_specs(bundle), described)


def table_specs(bundle: Bundle) -> dict[str, TensorSpec]:
    """Returns the specs of a bundle's tables of adapters, by name; none if it takes no adapters."""
    point = next((point for point in bundle.config.entry_points if point.name.startswith(ADAPTED)), None)
    arguments = () if point is None else point.arguments
    return {one.name: one.spec for one in arguments if one.name.startswith(ADAPTER_TABLES)}
