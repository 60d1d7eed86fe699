"""Agreement of the dumped module with other modules that compute the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(slots=True)
class ModuleAgreement:
    """Agreement of two modules of a dump on the results of an entry point.

    Attributes:
        module: file of the module that is compared with the one that gives the call its results.
        entry_point: entry point that was called.
        function: function of the module.
        calls: number of calls that were compared.
        tolerance: largest error that was accepted, relative to the largest element of a result.
        max_abs: largest error of all results.
        max_rel: largest error, relative to the largest element of its result.
    """

    module: str
    entry_point: str
    function: str
    calls: int
    tolerance: float
    max_abs: float
    max_rel: float


class Companion(Protocol):
    """Another module that runs a dumped call on the same arguments."""

    def run(self, entry_point: str, arguments: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]] | None:
        """Returns its results, of the shapes of the call's; None if this call is not compared."""
        ...

    def compare(
        self,
        entry_point: str,
        results: Sequence[str],
        actual: Sequence[np.ndarray[Any, Any]],
        expected: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        """Notes how well its results agree with those of the call.

        Args:
            entry_point: entry point that was called.
            results: names of the results.
            actual: results of ``run``, in the shapes of its specs.
            expected: results of the call, of the same shapes.

        Raises:
            VerificationError: they do not agree.
        """
        ...

    def close(self) -> None:
        """Frees the module."""
        ...
