"""Calls of an entry point on held tensors."""

from typing import Final

from compile_hlo.calls import Value, number_as_tensor
from lang_core import DeviceError, TensorSpec
from run_iree.devices import IREE_ERRORS, reason
from run_iree.sessions._function import Function
from run_iree.sessions._held import HeldTensors
from run_iree.sessions._prepared import PreparedCall
from run_iree.sessions._program import Program
from run_iree.sessions._results import Results, ResultTable


class Updating:
    """Entry point that runs on held tensors in the place of its donated arguments.

    Where the first call shows that the device shares the host's memory and updates the held tensors in place, further
    calls are prepared ones.
    """

    def __init__(self, program: Program, function: Function, first: int | None = None) -> None:
        """Finds the results that replace held tensors.

        Args:
            program: program of the session.
            function: the general function.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None where each comes back in the buffer of its argument.
        """
        self._program: Final = program
        self._function: Final = function
        self._key: Final = f"update by {function.name}"
        arguments = tuple(enumerate(function.signature.arguments))
        self._donated: Final = tuple((i, argument) for i, argument in arguments if argument.donated)
        self._values: Final = tuple((i, argument) for i, argument in arguments if not argument.donated)
        in_place = {argument: result for result, argument in function.signature.aliases.items()}
        self._in_place: Final = [in_place.get(i) for i, _ in self._donated]
        count = len(self._donated)
        self._returned: Final = self._in_place if first is None else list(range(first, first + count))
        results = enumerate(function.signature.results)
        self._table: Final = ResultTable([None if i in self._returned else result.spec for i, result in results])
        self._fits: tuple[TensorSpec, ...] | None = None

    @property
    def prepared(self) -> bool:
        """True if calls are prepared now."""
        return self._key in self._program.prepared

    def __call__(self, held: HeldTensors, *values: Value) -> Results:
        """Runs the entry point and waits for its results.

        Args:
            held: tensors for the donated arguments, of their shapes and dtypes; afterwards they have what replaces
                these. They are dead when the call fails on the device.
            *values: the other arguments, as for ``Function``; also a number for a tensor of one integer.

        Raises:
            DeviceError: see ``Function``; the held tensors do not fit or are dead; or a donated argument has no result
                that replaces it.
            InputError: see ``Function``.
        """
        program = self._program
        with program.lock:
            call: PreparedCall | None = program.prepared.get(self._key)
            if call is None or held.specs is not self._fits or held.program is not program:
                return self._with_handles(held, values)
            refs, outputs, failure = program.held.get(held.key), None, None
            try:
                if refs is not None:
                    outputs = call.run(values, refs)
            except IREE_ERRORS as error:  # which must not pass: its traceback would keep buffers beyond the device
                failure = reason(error)
            if failure is not None:
                held.drop()
                raise self._function.failed(failure)
            if outputs is None:
                return self._with_handles(held, values)
            program.counters.calls += 1
            return Results(program, self._table, outputs)

    def _with_handles(self, held: HeldTensors, values: tuple[Value, ...]) -> Results:
        """Runs a general call, with all its checks, and prepares further ones where that is safe."""
        self._check(held, values)
        given = {
            i: number_as_tensor(argument, value) for (i, argument), value in zip(self._values, values, strict=True)
        }
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
        others = {i: tensor for i, tensor in enumerate(results) if self._table.specs[i] is not None}
        return Results(self._program, self._table, None, others)

    def _prepare(self) -> None:
        program, function = self._program, self._function
        places = [i for i, _ in self._donated]
        adjacent = places == list(range(places[0], places[0] + len(places))) if places else False
        stay = self._in_place == self._returned
        if adjacent and stay and function.updates_in_place and not self.prepared:
            program.prepared[self._key] = PreparedCall(program, function.signature, takes_numbers=True)

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
            if index is None or function.signature.results[index].spec != argument.spec:
                raise DeviceError(
                    f"{function.name!r} gives no result in the place of {argument.name!r}: call it with handles"
                )
