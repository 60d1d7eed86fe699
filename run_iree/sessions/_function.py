"""General calls of an entry point: every value is checked, results are handles, and calls can be dumped."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from iree.runtime import HalBufferView, VmVariantList

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import DeviceError
from run_iree.devices import IREE_ERRORS, address, duplicate, peek, reason, upload
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program
from runtime import ArgumentChecks, Value, admitted
from runtime.dump import CallDumper, Companion, DumpedCall, add_traced, traced_specs


class Tap:
    """Reader of one call's arguments, traces and results, without a copy, while the call holds the program's lock.

    Errors are stored without their frames: a frame may hold a buffer, and must not outlive the device.
    """

    def __init__(
        self, program: Program, signature: Signature, call: DumpedCall, companions: Sequence[Companion] = ()
    ) -> None:
        self._companions: Final = companions
        self._others: list[Any] = []
        self._program: Final = program
        self._signature: Final = signature
        self._call: Final = call
        self._error: BaseException | None = None

    def arguments(self, values: Sequence[Any]) -> None:
        """Dumps the arguments, before the call.

        Raises:
            InputError: the dump cannot be written.
        """
        if self._call.wants_arguments:
            for argument, value in zip(self._signature.arguments, values, strict=True):
                self._guarded(self._argument, argument, value)
        self.check()
        if self._companions:
            pairs = zip(self._signature.arguments, values, strict=True)
            arrays = [np.array(self._array(argument, value)) for argument, value in pairs]
            name = self._signature.name
            self._others = [(companion, companion.run(name, arrays)) for companion in self._companions]

    def traced(self, key: str, views: Sequence[HalBufferView]) -> None:
        """Dumps a trace, during the call; IREE calls this, so errors are stored for ``check``."""
        self._guarded(self._traced, key, views)

    def results(self, keys: Sequence[int]) -> None:
        """Dumps the results, after the call.

        Raises:
            InputError: the dump cannot be written.
        """
        if self._call.wants_arguments:
            taken_over = self._signature.taken_over
            for index, key in enumerate(keys):
                aliased = self._signature.results[index].name in taken_over
                self._guarded(self._result, index, key, aliased)
        self.check()
        names = [result.name for result in self._signature.results]
        copied = keys if self._others else ()  # an error's frames may keep the arrays beyond the device
        expected = [np.array(self._view(index, key)) for index, key in enumerate(copied)]
        for companion, actual in self._others:
            if actual is not None:
                companion.compare(self._signature.name, names, actual, expected)
        if self._call.sites and not self._companions:
            self._call.check_kernels()

    def check(self) -> None:
        """Raises the first stored error.

        Raises:
            InputError: the dump cannot be written, or the module's traces are not those of its description.
        """
        if self._error is not None:
            raise self._error

    def _guarded(self, dump: Callable[..., None], *arguments: Any) -> None:
        if self._error is not None:
            return
        try:
            dump(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by check
            self._error = _without_frames(error)

    def _argument(self, argument: LoweredArgument, value: Any) -> None:
        self._call.argument(argument.name, self._array(argument, value), donated=argument.donated)

    def _array(self, argument: LoweredArgument, value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            return self._peek(self._program.views[value.key], argument.spec)
        return np.asarray(value, argument.spec.dtype.numpy)

    def _traced(self, key: str, views: Sequence[HalBufferView]) -> None:
        specs = traced_specs(self._call, self._program.origin, key, [view.byte_length for view in views])
        add_traced(self._call, key, [self._peek(view, spec) for view, spec in zip(views, specs, strict=True)])

    def _result(self, index: int, key: int, aliased: bool) -> None:
        self._call.result(self._signature.results[index].name, self._view(index, key), aliased=aliased)

    def _view(self, index: int, key: int) -> Any:
        return self._peek(self._program.views[key], self._signature.results[index].spec)

    def _peek(self, view: HalBufferView, spec: Any) -> Any:
        assert self._program.device is not None
        return peek(self._program.device.hal, view, spec)


def _without_frames(error: BaseException) -> BaseException:
    inner: BaseException | None = error
    while inner is not None:
        inner.__traceback__ = None
        inner = inner.__cause__ or inner.__context__
    return error


class Function:
    """Entry point of a session; a call checks the arguments and returns a tuple of DeviceTensor.

    Attributes:
        name: name of the entry point.
        signature: its arguments and results.
    """

    def __init__(
        self,
        program: Program,
        signature: Signature,
        dumper: CallDumper | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        self.name: Final = signature.name
        self.signature: Final = signature
        self._program: Final = program
        self._check: Final = ArgumentChecks(program, signature, DeviceTensor)
        self._dumper: Final = dumper
        self._companions: Final = companions
        self._donated: Final = tuple(argument.donated for argument in signature.arguments)
        self._uses: Final = tuple(f"{self.name!r} as argument {argument.name!r}" for argument in signature.arguments)
        # The argument in whose buffer a result lies, by the numbers of both. An object of IREE per result has its
        # price: once the first call has shown that the buffers are the same, the argument's serves the result.
        self._aliases: Final = signature.aliases
        # These might share a buffer with an argument or with one another.
        self._unaliased: Final = tuple(i for i in range(len(signature.results)) if i not in self._aliases)
        # The argument's own object if there is one: comparing a handle's spec with it is then immediate.
        self._result_specs: Final = tuple(
            signature.arguments[self._aliases[i]].spec if i in self._aliases else result.spec
            for i, result in enumerate(signature.results)
        )
        self._called = False
        self._aliases_hold = False
        self._unaliased_are_separate = False

    @property
    def dumps(self) -> bool:
        """True if its calls are dumped."""
        return self._dumper is not None

    @property
    def updates_in_place(self) -> bool:
        """True if a call has shown that exactly the aliased results lie in donated buffers, and calls are not dumped.

        Calls may then be prepared.
        """
        return self._aliases_hold and self._unaliased_are_separate and self._dumper is None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{argument.name}: {argument.spec}" for argument in self.signature.arguments)
        return f"Function({self.name}({arguments}) -> {[result.spec for result in self.signature.results]})"

    def __call__(self, *values: Value) -> tuple[DeviceTensor, ...]:
        """Runs the entry point and waits for its results.

        Args:
            *values: per argument an array or a tensor of a context (copied to the device), a DeviceTensor of the same
                session, or a number for a scalar or a tensor of one element. A tensor that is not donated is the same
                after the call, bit for bit; one that is donated is dead, even when the call fails.

        Raises:
            DeviceError: the session is closed; an argument's count, kind, shape or dtype is wrong, or it is dead; a
                donated tensor is passed twice; or the device failed.
            InputError: a number is outside of the argument's allowed range (tensors on the device are not looked at);
                or the call is dumped, and the dump cannot be written.
            VerificationError: the call is dumped, and another module that dumps need does not agree.
        """
        program = self._program
        with program.lock:
            if program.closed:
                raise DeviceError(f"cannot call {self.name!r}: the session on {program.origin!r} is closed")
            program.check()
            values = admitted(self.signature.arguments, values)
            self._check(values)
            tap = None
            if self._dumper is not None:
                tap = Tap(program, self.signature, self._dumper.call(self.name), self._companions)
                tap.arguments(values)
            program.tracer = None if tap is None else tap.traced
            outcome = self._run(values)
            program.tracer = None
            self._end_donated(values, () if isinstance(outcome, str) else outcome)
            if isinstance(outcome, str):
                raise self.failed(outcome)
            program.counters.calls += 1
            specs = self._result_specs
            results = tuple([DeviceTensor(program, key, spec) for key, spec in zip(outcome, specs, strict=True)])
            if tap is not None:
                tap.results(outcome)
            return results

    def failed(self, why: str) -> DeviceError:
        """Returns the error to raise if the device fails with this message of IREE."""
        return DeviceError(f"{self.name!r} of {self._program.origin!r} failed on the device: {why}")

    def _run(self, values: Sequence[Value]) -> list[int] | str:
        """Returns the keys of the results' buffers, or IREE's message.

        IREE's errors end here: their traceback would keep this frame, and with it buffers, alive beyond the device.
        """
        program = self._program
        inputs = outputs = view = None
        lent: list[HalBufferView] = []
        views: dict[int, HalBufferView] = {}
        try:
            inputs = VmVariantList(len(values))
            outputs = VmVariantList(len(self.signature.results))
            known, push = program.views, inputs.push_ref
            for argument, donated, value in zip(self.signature.arguments, self._donated, values, strict=True):
                if donated and isinstance(value, DeviceTensor):
                    push(known[value.key].ref)
                elif argument.kind == "scalar":
                    _push_number(inputs, argument, value)
                else:
                    view = self._view(argument, value)
                    push(view.ref)
                    if not donated:
                        lent.append(view)
            began = time.perf_counter()
            program.invoke(self.name, inputs, outputs)
            program.counters.module_seconds += time.perf_counter() - began
            reused = self._reused(values)
            for index in range(len(self.signature.results)):
                if index not in reused:
                    views[index] = outputs.get_as_object(index, HalBufferView)
            separate = self._separate(views, lent)
            if not self._called:
                self._called, self._unaliased_are_separate = True, separate
                self._aliases_hold = self._are_in_place(values, views)
            fresh = {index: next(program.keys) for index in views}
            known.update({key: views[index] for index, key in fresh.items()})
            return [reused[index] if index in reused else fresh[index] for index in range(len(self.signature.results))]
        except IREE_ERRORS as error:
            return reason(error)
        finally:
            inputs = outputs = view = push = None
            views.clear()
            lent.clear()

    def _reused(self, values: Sequence[Value]) -> dict[int, int]:
        """Returns the keys of donated handles with buffers that are results, by the results' numbers."""
        if not self._aliases_hold:
            return {}
        pairs = [(result, values[index]) for result, index in self._aliases.items()]
        return {result: value.key for result, value in pairs if isinstance(value, DeviceTensor)}

    def _are_in_place(self, values: Sequence[Value], views: Mapping[int, HalBufferView]) -> bool:
        """Returns whether every aliased result lies in the buffer of a donated handle, as far as the host can see."""
        for result, index in self._aliases.items():
            value = values[index]
            if not isinstance(value, DeviceTensor):
                return False
            place = address(self._program.views[value.key])
            if place is None or place != address(views[result]):
                return False
        return True

    def _end_donated(self, values: Sequence[Value], keys: Sequence[int]) -> None:
        """Marks donated handles as dead; buffers with these keys stay, as results have them now."""
        passed = set(keys)
        for donated, value, use in zip(self._donated, values, self._uses, strict=True):
            if donated and isinstance(value, DeviceTensor):
                if value.key in passed:
                    value.pass_on(use)
                else:
                    value.donate(use)

    def _view(self, argument: LoweredArgument, value: Value) -> HalBufferView:
        """Returns a buffer with the value: an uploaded array, or a handle's own or a copy of it."""
        program = self._program
        assert program.device is not None
        if not isinstance(value, DeviceTensor):
            program.counters.bytes_in += argument.spec.nbytes
            return upload(program.device.hal, np.asarray(value), argument.spec)
        view = program.views[value.key]
        if argument.guarded and not argument.donated:
            program.counters.bytes_guarded += argument.spec.nbytes
            return duplicate(program.device.hal, view, argument.spec)
        return view

    def _separate(self, views: dict[int, HalBufferView], lent: list[HalBufferView]) -> bool:
        """Copies results that share a buffer with an argument or one another: one of them might be donated later.

        Returns:
            Whether all were separate.
        """
        program = self._program
        assert program.device is not None
        taken, separate = list(lent), True
        for i in self._unaliased:
            spec = self.signature.results[i].spec
            if any(views[i] == other for other in taken):
                program.counters.bytes_guarded += spec.nbytes
                views[i] = duplicate(program.device.hal, views[i], spec)
                separate = False
            taken.append(views[i])
        return separate


def _push_number(inputs: VmVariantList, argument: LoweredArgument, value: Value) -> None:
    """Appends a number that was checked."""
    assert isinstance(value, int | float | np.generic)
    if argument.spec.dtype.is_floating:
        inputs.push_float(float(value))
    else:
        inputs.push_int(int(value))
