"""Calls an entry point on tensors that stay in their place."""

from typing import Final

import numpy as np

from compile_hlo.directions import LoweredArgument
from lang_core import DeviceError, TensorSpec
from run_iree.devices import IREE_ERRORS, reason
from run_iree.sessions._function import Function, Value
from run_iree.sessions._held import HeldTensors, Results, ResultTable, results_of
from run_iree.sessions._program import Program
from run_iree.sessions._quick import QuickCall


class Updating:
    """An entry point; calling it runs it on held tensors in the place of its donated arguments.

    Where a first call shows that the device shares the host's memory and writes the held tensors in place, each further
    one costs far less than one with handles does.
    """

    def __init__(self, program: Program, function: Function, first: int | None = None) -> None:
        """Looks at a function.

        Args:
            program: of the session.
            function: of it.
            first: the result that takes the place of the first donated argument; the next one's that of the next. None
                where all come back in the buffers of such.
        """
        self._program: Final = program
        self._function: Final = function
        self._counters: Final = function.counters
        self._key: Final = f"update by {function.name}"
        arguments = function.signature.arguments
        self._donated: Final = [(i, each) for i, each in enumerate(arguments) if each.donated]
        self._values: Final = [(i, each) for i, each in enumerate(arguments) if not each.donated]
        in_place = {argument: result for result, argument in function.signature.aliases.items()}
        returned = [in_place.get(i) if first is None else first + at for at, (i, _) in enumerate(self._donated)]
        self._in_place: Final = [in_place.get(i) for i, _ in self._donated]
        self._returned: Final = returned
        results = enumerate(function.signature.results)
        self._table: Final = ResultTable([None if i in returned else result.spec for i, result in results])
        self._fits: tuple[TensorSpec, ...] | None = None

    @property
    def prepared(self) -> bool:
        """Whether calls are made without handles now."""
        return self._key in self._program.kept

    def __call__(self, held: HeldTensors, *values: Value) -> Results:
        """Runs the entry point and waits for its results.

        Args:
            held: as many as there are donated arguments, of their shapes and dtypes; afterwards they have what comes
                back in their buffers. They are dead when the call fails on the device.
            *values: per argument that is not donated, as for ``Function``; also a number for a tensor of one integer.

        Raises:
            DeviceError: as of ``Function``; what is held does not fit, or is dead; or a donated argument is no result.
            InputError: as of ``Function``.
        """
        program = self._program
        with program.lock:
            quick: QuickCall | None = program.kept.get(self._key)
            if quick is None or held.specs is not self._fits or held.program is not program:
                return self._with_handles(held, values)
            refs, outputs, failure = program.held.get(held.key), None, None
            try:
                if refs is not None:
                    outputs = quick(refs, values)
            except IREE_ERRORS as error:  # which does not pass: its traceback would keep buffers beyond the device
                failure = reason(error)
            if failure is not None:
                held.drop()
                raise self._function.failed(failure)
            if outputs is None:
                return self._with_handles(held, values)
            self._counters.calls += 1
            return results_of(program, self._counters, self._table, outputs)

    def _with_handles(self, held: HeldTensors, values: tuple[Value, ...]) -> Results:
        """A call that checks everything; and prepares the next ones, where that can be done."""
        self._check(held, values)
        given = {i: _tensor(argument, value) for (i, argument), value in zip(self._values, values, strict=True)}
        handles = held.lend()
        given |= {i: handle for (i, _), handle in zip(self._donated, handles, strict=True)}
        try:
            results = self._function(*(given[index] for index in range(len(given))))
        except BaseException:
            if all(handle.alive for handle in handles):  # refused
                held.take(handles)
            raise
        held.take([results[index] for index in self._returned if index is not None])
        self._fits = held.specs
        self._prepare()
        own = {i: each for i, each in enumerate(results) if self._table.specs[i] is not None}
        return results_of(self._program, self._counters, self._table, None, own)

    def _prepare(self) -> None:
        program, function = self._program, self._function
        places = [i for i, _ in self._donated]
        together = places == list(range(places[0], places[0] + len(places))) if places else False
        stay = self._in_place == self._returned
        if together and stay and function.updates_in_place and not self.prepared:
            assert program.device is not None
            arguments = function.signature.arguments
            program.kept[self._key] = QuickCall(
                program.device.hal, program.invoker(function.name), arguments, program.views, self._counters
            )

    def _check(self, held: HeldTensors, values: tuple[Value, ...]) -> None:
        function = self._function
        held.check(f"update by {function.name!r}")
        wanted = tuple(argument.spec for _, argument in self._donated)
        if held.program is not self._program or held.specs != wanted:
            where = "" if held.program is self._program else " of another session"
            raise DeviceError(
                f"{function.name!r} updates {list(wanted)}, found held tensors {list(held.specs)}{where}: hold those"
            )
        if len(values) != len(self._values):
            names = ", ".join(argument.name for _, argument in self._values)
            raise DeviceError(
                f"{function.name!r} takes {len(self._values)} values beside what is held ({names}), found {len(values)}"
            )
        for (_, argument), index in zip(self._donated, self._returned, strict=True):
            if index is None or self._function.signature.results[index].spec != argument.spec:
                raise DeviceError(
                    f"{function.name!r} gives no result in the place of {argument.name!r}: call it with handles"
                )


def _tensor(argument: LoweredArgument, value: Value) -> Value:
    """A number for a tensor of one integer as an array; where it is none of the dtype it stays, to be refused."""
    spec = argument.spec
    if argument.kind == "tensor" and type(value) is int and spec.size == 1 and spec.dtype.is_integer:
        limits = np.iinfo(spec.dtype.numpy)
        if limits.min <= value <= limits.max:
            return np.full(spec.shape, value, spec.dtype.numpy)
    return value
