"""Calls an entry point of a session."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from iree.runtime import HalBufferView, VmVariantList

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import DeviceError, InputError
from run_iree.devices import IREE_ERRORS, address, duplicate, reason, upload
from run_iree.dump import Dumper
from run_iree.sessions._counters import Counters
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program
from run_iree.sessions._tap import Tap

Value = np.ndarray | np.generic | DeviceTensor | int | float


class Function:
    """An entry point; calling it checks the arguments first and returns a tuple of DeviceTensor.

    Attributes:
        name: the entry point's.
        signature: what it takes and returns.
        counters: the session's.
    """

    def __init__(
        self, program: Program, name: str, signature: Signature, counters: Counters, dumper: Dumper | None = None
    ) -> None:
        self._program: Final = program
        self.name: Final = name
        self.signature: Final = signature
        self.counters: Final = counters
        self._dumper: Final = dumper
        aliases = signature.aliases
        # Results that do not lie in a donated argument's buffer might share one with something else.
        self._loose: Final = tuple(i for i in range(len(signature.results)) if i not in aliases)
        # Which argument's buffer a result lies in. A step has many such, and each object of IREE's has its price: the
        # argument's serves the result, once the first call has shown that the buffer is the same.
        self._taken: Final = aliases
        self._donated: Final = tuple((i, each.spec) for i, each in enumerate(signature.arguments) if each.donated)
        self._rest: Final = tuple(i for i, each in enumerate(signature.arguments) if not each.donated)
        self._stays = False
        self._apart = False
        self._called = False
        # Of the argument where there is one: a handle of the very spec is known for right at once.
        self._result_specs: Final = tuple(
            signature.arguments[self._taken[i]].spec if i in self._taken else result.spec
            for i, result in enumerate(signature.results)
        )
        self._to: Final = tuple(f"{name!r} as argument {argument.name!r}" for argument in signature.arguments)

    @property
    def dumps(self) -> bool:
        """Whether its calls are dumped."""
        return self._dumper is not None

    @property
    def updates_in_place(self) -> bool:
        """Whether a call has shown that only donated buffers come back, each as the result that is said to be it.

        Such calls may be made without looking at the buffers. False where calls are dumped.
        """
        return self._stays and self._apart and self._dumper is None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{argument.name}: {argument.spec}" for argument in self.signature.arguments)
        return f"Function({self.name}({arguments}) -> {[result.spec for result in self.signature.results]})"

    def __call__(self, *values: Value) -> tuple[DeviceTensor, ...]:
        """Runs the entry point and waits for its results.

        Args:
            *values: per argument a NumPy array (copied to the device), a DeviceTensor of the same session, or a number
                for a scalar. A tensor that is not donated is the same after the call, bit for bit; one that is
                donated is dead, even when the call fails.

        Raises:
            DeviceError: the session is closed; an argument's count, kind, shape or dtype is wrong, or it is dead; a
                donated tensor is passed twice; or the device failed.
            InputError: a number is out of an argument's bounds (of what a device holds nothing is known); or the call
                is dumped, and the dump cannot be written.
        """
        program = self._program
        with program.lock:
            if program.closed:
                raise DeviceError(f"cannot call {self.name!r}: the session on {program.origin!r} is closed")
            self._check(values)
            tap = None
            if self._dumper is not None:
                tap = Tap(program, self.signature, self._dumper.call(self.name))
                tap.arguments(values)
            program.tracer = None if tap is None else tap.traced
            outcome = self._run(values)
            program.tracer = None
            self._take(values, () if isinstance(outcome, str) else outcome)
            if isinstance(outcome, str):
                raise self.failed(outcome)
            self.counters.calls += 1
            specs, counters = self._result_specs, self.counters
            results = tuple(
                [DeviceTensor(program, key, spec, counters) for key, spec in zip(outcome, specs, strict=True)]
            )
            if tap is not None:
                tap.results(outcome)
            return results

    def failed(self, why: str) -> DeviceError:
        """What is raised where the device fails, of what IREE said."""
        return DeviceError(f"{self.name!r} of {self._program.origin!r} failed on the device: {why}")

    def _run(self, values: Sequence[Value]) -> list[int] | str:
        """Returns the keys of the results' buffers, or what IREE said.

        It does not let IREE's errors pass: their traceback would keep this frame, and with it buffers, alive
        beyond the device.
        """
        program = self._program
        inputs = outputs = view = None
        lent: list[HalBufferView] = []
        views: dict[int, HalBufferView] = {}
        try:
            inputs = VmVariantList(len(values))
            outputs = VmVariantList(len(self.signature.results))
            known, push = program.views, inputs.push_ref
            for argument, value in zip(self.signature.arguments, values, strict=True):
                if argument.donated and isinstance(value, DeviceTensor):
                    push(known[value.key].ref)
                elif argument.kind == "scalar":
                    _push_number(inputs, argument, value)
                else:
                    view = self._view(argument, value)
                    push(view.ref)
                    if not argument.donated:
                        lent.append(view)
            began = time.perf_counter()
            program.invoke(self.name, inputs, outputs)
            self.counters.module_seconds += time.perf_counter() - began
            kept = self._kept(values)
            for index in range(len(self.signature.results)):
                if index not in kept:
                    views[index] = outputs.get_as_object(index, HalBufferView)
            apart = self._separate(views, lent)
            if not self._called:
                self._called, self._stays, self._apart = True, self._in_place(values, views), apart
            fresh = {index: next(program.keys) for index in views}
            known.update({key: views[index] for index, key in fresh.items()})
            return [kept[index] if index in kept else fresh[index] for index in range(len(self.signature.results))]
        except IREE_ERRORS as error:
            return reason(error)
        finally:
            inputs = outputs = view = push = None
            views.clear()
            lent.clear()

    def _kept(self, values: Sequence[Value]) -> dict[int, int]:
        """The results that are the buffer of a donated handle, with its key."""
        if not self._stays:
            return {}
        pairs = [(result, values[index]) for result, index in self._taken.items()]
        return {result: value.key for result, value in pairs if isinstance(value, DeviceTensor)}

    def _in_place(self, values: Sequence[Value], views: Mapping[int, HalBufferView]) -> bool:
        """Whether every result that is said to lie in the buffer of a donated handle does, as far as can be seen."""
        for result, index in self._taken.items():
            value = values[index]
            if not isinstance(value, DeviceTensor):
                return False
            there = address(self._program.views[value.key])
            if there is None or there != address(views[result]):
                return False
        return True

    def _take(self, values: Sequence[Value], keys: Sequence[int]) -> None:
        """Ends the handles that were donated; those buffers stay that results have now, by their keys."""
        passed = set(keys)
        for argument, value, to in zip(self.signature.arguments, values, self._to, strict=True):
            if argument.donated and isinstance(value, DeviceTensor):
                if value.key in passed:
                    value.pass_on(to)
                else:
                    value.donate(to)

    def _view(self, argument: LoweredArgument, value: Value) -> HalBufferView:
        program = self._program
        assert program.device is not None
        if not isinstance(value, DeviceTensor):
            self.counters.bytes_in += argument.spec.nbytes
            return upload(program.device.hal, np.asarray(value), argument.spec)
        view = program.views[value.key]
        if argument.guarded and not argument.donated:
            self.counters.bytes_guarded += argument.spec.nbytes
            return duplicate(program.device.hal, view, argument.spec)
        return view

    def _separate(self, views: dict[int, HalBufferView], lent: list[HalBufferView]) -> bool:
        """Gives results that are an argument, or one another, a buffer of their own: one might be donated later.

        Returns:
            Whether all have been apart.
        """
        assert self._program.device is not None
        taken, apart = list(lent), True
        for i in self._loose:
            spec = self.signature.results[i].spec
            if any(views[i] == other for other in taken):
                self.counters.bytes_guarded += spec.nbytes
                views[i] = duplicate(self._program.device.hal, views[i], spec)
                apart = False
            taken.append(views[i])
        return apart

    def _check(self, values: Sequence[Value]) -> None:
        arguments = self.signature.arguments
        if len(values) != len(arguments):
            names = ", ".join(argument.name for argument in arguments)
            raise DeviceError(f"{self.name!r} takes {len(arguments)} arguments ({names}), found {len(values)}")
        donated: set[int] = set()
        passed: set[int] = set()
        for index in self._rest if self._usual(values) else range(len(arguments)):
            argument, value = arguments[index], values[index]
            if argument.kind == "scalar":
                self._check_scalar(argument, value)
                self._check_bounds(argument, value)
                continue
            if isinstance(value, DeviceTensor):
                self._check_handle(argument, value)
                key = value.key
                if key in donated or (argument.donated and key in passed):
                    raise DeviceError(
                        f"{self.name!r}: the tensor for {argument.name!r} is passed twice and one of the arguments is "
                        f"donated; pass a copy (session.upload(tensor.numpy()))"
                    )
                passed.add(key)
                if argument.donated:
                    donated.add(key)
            elif not isinstance(value, np.ndarray | np.generic):
                raise self._mismatch(argument, f"a {type(value).__name__}")
            elif value.shape != argument.spec.shape or value.dtype != argument.spec.dtype.numpy:
                raise self._mismatch(argument, f"an array of shape {value.shape} and dtype {value.dtype}")
            else:
                self._check_bounds(argument, value)

    def _usual(self, values: Sequence[Value]) -> bool:
        """Whether every donated argument is a handle that may be taken, and each is another one."""
        program, keys = self._program, set[int]()
        for index, spec in self._donated:
            value = values[index]
            if not isinstance(value, DeviceTensor) or not value.usable_as(spec, program):
                return False
            keys.add(value.key)
        rest = (values[index] for index in self._rest)
        twice = any(isinstance(value, DeviceTensor) and value.key in keys for value in rest)
        return len(keys) == len(self._donated) and not twice

    def _check_bounds(self, argument: LoweredArgument, value: Value) -> None:
        numbers = np.asarray(value)
        if argument.bounds is None or not numbers.size:
            return
        least, most = argument.bounds
        if numbers.min() < least or numbers.max() > most:
            wrong = numbers.min() if numbers.min() < least else numbers.max()
            raise InputError(
                f"{self.name!r}: argument {argument.name!r}: expected {least} to {most}; found {wrong}: the bundle was "
                f"exported for no more"
            )

    def _check_handle(self, argument: LoweredArgument, value: DeviceTensor) -> None:
        value.check(f"pass for {argument.name!r} of {self.name!r}")
        if value.program is not self._program:
            raise self._mismatch(argument, f"a tensor of another session ({value.spec}); pass its .numpy()")
        if value.spec != argument.spec:
            raise self._mismatch(argument, f"a tensor {value.spec}")

    def _check_scalar(self, argument: LoweredArgument, value: Value) -> None:
        dtype = argument.spec.dtype
        if isinstance(value, np.generic):
            value = value.item()
        if dtype.is_floating:
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            fits = isinstance(value, int) and not isinstance(value, bool) and limits.min <= value <= limits.max
        else:
            fits = isinstance(value, bool)
        if not fits:
            raise self._mismatch(argument, f"{value!r}" if isinstance(value, int | float) else type(value).__name__)

    def _mismatch(self, argument: LoweredArgument, found: str) -> DeviceError:
        expected = f"a number of dtype {argument.spec.dtype}" if argument.kind == "scalar" else f"{argument.spec}"
        return DeviceError(f"{self.name!r}: argument {argument.name!r} is {expected}, found {found}")


def _push_number(inputs: VmVariantList, argument: LoweredArgument, value: Value) -> None:
    """Passes a number that has been checked."""
    assert isinstance(value, int | float | np.generic)
    if argument.spec.dtype.is_floating:
        inputs.push_float(float(value))
    else:
        inputs.push_int(int(value))
