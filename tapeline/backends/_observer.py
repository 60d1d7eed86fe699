"""Dumps of the calls of JAX's sessions."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from compile_hlo.directions import Signature
from runtime.dump import CallDumper, Companion, add_traced, traced_specs

Array = np.ndarray[Any, Any]


class CallDumps:
    """Observer of a session that dumps its calls.

    Args:
        dumper: maker of the dumps of calls.
        origin: file of the module, for messages.
        companions: other modules that also run each call, with results that must agree; closed with the session.
    """

    def __init__(self, dumper: CallDumper, origin: str, companions: Sequence[Companion] = ()) -> None:
        self._dumper: Final = dumper
        self._origin: Final = origin
        self._companions: Final = companions

    def called(self, signature: Signature, arrays: Sequence[Array]) -> "CallDump":
        """Dumps the arguments of a call, and runs it in the companions."""
        return CallDump(signature, self._dumper, self._origin, self._companions, arrays)

    def close(self) -> None:
        """Closes the companions."""
        for companion in self._companions:
            companion.close()


class CallDump:
    """Dump of one call; its arguments are dumped at construction."""

    def __init__(
        self,
        signature: Signature,
        dumper: CallDumper,
        origin: str,
        companions: Sequence[Companion],
        arrays: Sequence[Array],
    ) -> None:
        self._signature: Final = signature
        self._origin: Final = origin
        self._call: Final = dumper.call(signature.name)
        for argument, array in zip(signature.arguments, arrays, strict=True):
            self._call.argument(argument.name, array, donated=argument.donated)
        self._others: Final = [(companion, companion.run(signature.name, arrays)) for companion in companions]

    def traced(self, key: str, arrays: Sequence[Array]) -> None:
        """Dumps the tensors of a trace."""
        specs = traced_specs(self._call, self._origin, key, [array.nbytes for array in arrays])
        shaped = [array.reshape(spec.shape) for array, spec in zip(arrays, specs, strict=True)]
        add_traced(self._call, key, shaped)

    def returned(self, arrays: Sequence[Array]) -> None:
        """Dumps the results, and compares them with the companions'."""
        for result, array in zip(self._signature.results, arrays, strict=True):
            self._call.result(result.name, array, aliased=result.name in self._signature.taken_over)
        names = [result.name for result in self._signature.results]
        for companion, actual in self._others:
            if actual is not None:
                companion.compare(self._signature.name, names, actual, arrays)
        if self._call.sites and not self._others:
            self._call.check_kernels()
