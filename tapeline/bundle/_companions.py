"""Other modules of a bundle that run the calls of a dump; their results must agree."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from lang_core import VerificationError, as_dtype, checked_choices
from runtime.dump import ModuleAgreement
from tapeline.compare import TOLERANCE, agreement, precision_of

Array = np.ndarray[Any, Any]


def tolerance_of(model: Mapping[str, Any]) -> float:
    """Returns the largest error that rounding at other places explains, of a bundle's model."""
    return TOLERANCE[precision_of(model)]


class SecondSession(Protocol):
    """Session of any engine."""

    def function(self, name: str, /) -> Any:
        """Returns an entry point to call, with its signature."""
        ...

    def close(self) -> None:
        """Frees the module."""
        ...


@checked_choices
class SecondModule:
    """Module that runs the calls of a dump on copies of their arguments.

    Args:
        file: file of the module.
        session: session of the module, which is closed with the dump's.
        rows: receiver of the figures, one row per entry point.
        tolerance: largest error that is accepted, relative to the largest element of a result.
        function: returns the name of the function by the entry point's.
        always: True to run every call; False for the first one of each entry point.
    """

    def __init__(
        self,
        file: str,
        session: SecondSession,
        rows: list[ModuleAgreement],
        tolerance: float,
        *,
        function: Callable[[str], str] = str,
        always: bool = False,
    ) -> None:
        self._file: Final = file
        self._session: Final = session
        self._rows: Final = rows
        self._tolerance: Final = tolerance
        self._function: Final = function
        self._always: Final = always
        self._known: Final[dict[str, ModuleAgreement]] = {}

    def run(self, entry_point: str, arguments: Sequence[Array]) -> Sequence[Array] | None:
        """Returns the results of a call; None if it is not the first one, and not all are run."""
        if entry_point in self._known and not self._always:
            return None
        function = self._session.function(self._function(entry_point))
        values = [
            array.item() if argument.kind == "scalar" else array
            for argument, array in zip(function.signature.arguments, arguments, strict=True)
        ]
        return [tensor.numpy() for tensor in function(*values)]

    def compare(
        self, entry_point: str, results: Sequence[str], actual: Sequence[Array], expected: Sequence[Array]
    ) -> None:
        """Notes the figures of a call.

        Integers, such as the likeliest token, are compared if all floats are the same, bit for bit: rounding at
        another place may move them.

        Raises:
            VerificationError: a result does not agree.
        """
        row = self._known.get(entry_point)
        if row is None:
            row = ModuleAgreement(self._file, entry_point, self._function(entry_point), 0, self._tolerance, 0.0, 0.0)
            self._known[entry_point] = row
            self._rows.append(row)
        row.calls += 1
        triples = list(zip(results, actual, expected, strict=True))
        floats = [triple for triple in triples if as_dtype(triple[1].dtype).is_floating]
        same = all(mine.tobytes() == theirs.tobytes() for _, mine, theirs in floats)
        for name, mine, theirs in triples if same else floats:
            figures = agreement(mine, theirs)
            row.max_abs, row.max_rel = max(row.max_abs, figures.max_abs), max(row.max_rel, figures.max_rel)
            if not figures.within(self._tolerance if as_dtype(mine.dtype).is_floating else 0.0):
                raise VerificationError(
                    f"dump of {entry_point!r}: result {name!r} of {row.function!r} in {self._file} differs from the "
                    f"dumped module's by {figures.max_rel:.3g} of its largest element, expected at most "
                    f"{self._tolerance:g}: the dump does not show the bundle's computation: export again"
                )

    def close(self) -> None:
        """Frees the module."""
        self._session.close()
