"""The engine ``acme-numpy``: it runs a bundle's model with NumPy, and counts calls by entry point.

A session has the methods of ``runtime.Session``, and need not derive from it. Tensors are arrays, which
nothing changes once they are made, so that a copy is another name of the same array.
"""

from collections import Counter
from functools import partial

import numpy as np

from lang_core import DeviceError, EagerExecutionContext, TensorSpec, as_dtype, near_names
from runtime import ArgumentChecks, Counters, number_as_tensor
from tapeline.backends import Engine, register_engine
from tapeline.divergence import model_of


class ArrayTensor:
    """Handle of an array; ``program`` and ``key`` are what ``ArgumentChecks`` knows it by."""

    def __init__(self, session, array):
        self.program, self.key, self._array = session, id(array), array
        self.spec = TensorSpec(array.shape, as_dtype(array.dtype))
        self.donated = False

    @property
    def alive(self):
        """True until it is donated or held, or the session is closed."""
        return not (self.donated or self.program.closed)

    def check(self, action):
        """Refuses an action on a dead tensor."""
        if not self.alive:
            raise DeviceError(f"cannot {action} this {self.spec}: it was donated or held, or its session is closed")

    def usable_as(self, spec, program):
        """Returns whether it is alive, of the session and of the spec."""
        return self.alive and self.program is program and self.spec == spec

    def numpy(self):
        """Copies the contents."""
        return self._read().copy()

    def take(self):
        """Returns the array, and dies."""
        array = self._read()
        self.donated = True
        return array

    def _read(self):
        self.check("read")
        return self._array


class HeldArrays:
    """Arrays that calls take and leave in their place."""

    def __init__(self, session, arrays):
        self.session, self.arrays = session, arrays

    def numpy(self, index):
        """Copies the contents of one."""
        return self.arrays[index].copy()

    def copies(self, indices):
        """Copies some."""
        return [ArrayTensor(self.session, self.arrays[index]) for index in indices]

    def read(self, index, part):
        """Copies a part of one."""
        return self.arrays[index][part].copy()

    def write(self, index, part, values):
        """Replaces a part of one."""
        array = self.arrays[index].copy()
        array[part] = values
        self.arrays[index] = array

    def replace(self, tensors):
        """Replaces some by handles, which are dead afterwards."""
        for index, tensor in tensors.items():
            self.arrays[index] = tensor.take()


class ArrayResults:
    """Results of a call on held tensors."""

    def __init__(self, session, arrays):
        self._session, self._arrays = session, arrays

    def __getitem__(self, index):
        """Returns a result by its index among all of the function."""
        return ArrayTensor(self._session, self._arrays[index])

    def number(self, index):
        """Reads a result that is a single i32."""
        return int(self._arrays[index].item())


class NumPySession:
    """Session that runs the entry points of a bundle's model in the eager context."""

    target = "acme-numpy"

    def __init__(self, bundle, device):
        _, points = model_of(bundle)
        weights = bundle.weights()
        self._ctx = EagerExecutionContext() if weights is None else EagerExecutionContext(weights)
        self._points = {point.name: point for point in points}
        self._signatures = {signature.name: signature for signature in bundle.config.entry_points}
        self._checks = {name: ArgumentChecks(self, one, ArrayTensor) for name, one in self._signatures.items()}
        self.device, self.module, self.closed = device, bundle.path / "module.mlir", False
        self.entry_points, self.counters, self.calls = tuple(self._signatures), Counters(), Counter()

    def function(self, name):
        """Returns an entry point that takes arrays, numbers and handles."""
        self._check_open()
        if name not in self._signatures:
            known = ", ".join(self._signatures)
            raise DeviceError(f"entry point {name!r} not found; available: {known}{near_names(name, self._signatures)}")
        return partial(self._call, name)

    def updating(self, name, first=None):
        """Returns an entry point that runs on held tensors in the place of its donated arguments."""
        self.function(name)
        return partial(self._update, name, first)

    def hold(self, tensors):
        """Returns tensors that calls take and leave in their place."""
        return HeldArrays(self, [tensor.take() for tensor in tensors])

    def upload(self, array):
        """Returns a tensor of an array's contents."""
        self._check_open()
        return ArrayTensor(self, array.copy())

    def zeros(self, spec):
        """Returns a tensor of zeros."""
        return self.upload(np.zeros(spec.shape, spec.dtype.numpy))

    def close(self):
        """Ends it; closing twice is allowed."""
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def _call(self, name, *values):
        self._checks[name](values)
        results = self._run(name, values)
        for argument, value in zip(self._signatures[name].arguments, values, strict=True):
            if argument.donated and isinstance(value, ArrayTensor):
                value.take()
        return [ArrayTensor(self, array) for array in results]

    def _update(self, name, first, held, *values):
        signature, given = self._signatures[name], iter(values)
        arrays = iter(held.arrays)
        results = self._run(name, [next(arrays) if one.donated else next(given) for one in signature.arguments])
        names = [result.name for result in signature.results]
        donated = [argument for argument in signature.arguments if argument.donated]
        for place, argument in enumerate(donated):
            held.arrays[place] = results[names.index(argument.alias_result) if first is None else first + place]
        return ArrayResults(self, results)

    def _run(self, name, values):
        self._check_open()
        arrays = [self._array(*pair) for pair in zip(self._signatures[name].arguments, values, strict=True)]
        self.counters.calls += 1
        self.calls[name] += 1
        results = self._points[name](self._ctx, *map(self._ctx.constant, arrays))
        return [results[result.name].numpy() for result in self._signatures[name].results]

    def _array(self, argument, value):
        if isinstance(value, ArrayTensor):
            return value.numpy()
        return np.asarray(number_as_tensor(argument, value), argument.spec.dtype.numpy)

    def _check_open(self):
        if self.closed:
            raise DeviceError(f"the session on {str(self.module)!r} is closed; open a new one")


def _open(bundle, place):
    return NumPySession(bundle, place.name)


ACME_NUMPY = register_engine(Engine("acme-numpy", ("host",), _open))
