"""Calls of an entry point on held tensors."""

from typing import Final

from lang_core import TensorSpec
from run_iree.devices import IREE_ERRORS, reason
from run_iree.sessions._function import Function
from run_iree.sessions._held import HeldTensors
from run_iree.sessions._prepared import PreparedCall
from run_iree.sessions._program import Program
from run_iree.sessions._results import Results, ResultTable
from runtime import BaseUpdating, UpdatePlan, Value


class Updating(BaseUpdating[Program, Function, HeldTensors, Results]):
    """Entry point that runs on held tensors in the place of its donated arguments.

    If the first call shows that the device shares the host's memory and updates the held tensors in place, further
    calls are prepared ones.
    """

    def __init__(self, program: Program, function: Function, plan: UpdatePlan) -> None:
        """Takes the general function, and its held tensors."""
        super().__init__(program, function, plan)
        self._key: Final = f"update by {function.name}"
        self._table: Final = ResultTable(plan.specs)
        self._fits: tuple[TensorSpec, ...] | None = None

    @property
    def prepared(self) -> bool:
        """True if calls are prepared now."""
        return self._key in self._program.prepared

    def __call__(self, held: HeldTensors, *values: Value) -> Results:
        program = self._program
        with program.lock:
            program.check()  # before there is a local: a traceback keeps this frame
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
        """Runs a general call, with all its checks, and prepares further ones if that is safe."""
        plan = self._plan
        plan.check(held, values)
        given = plan.given(values)
        handles = held.lend()
        given |= dict(zip(plan.donated, handles, strict=True))
        try:
            results = self._function(*(given[index] for index in range(len(given))))
        except BaseException:
            if all(handle.alive for handle in handles):  # refused
                held.take(handles)
            raise
        held.take(plan.replacing(results))
        self._fits = held.specs
        self._prepare()
        others = {i: tensor for i, tensor in enumerate(results) if self._table.specs[i] is not None}
        return Results(self._program, self._table, None, others)

    def _prepare(self) -> None:
        program, function, places = self._program, self._function, self._plan.donated
        adjacent = places == (*range(places[0], places[0] + len(places)),) if places else False
        stay = self._plan.in_place == self._plan.returned
        if adjacent and stay and function.updates_in_place and not self.prepared:
            program.prepared[self._key] = PreparedCall(program, function.signature, takes_numbers=True)
