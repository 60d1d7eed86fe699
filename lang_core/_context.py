"""Execution contexts, which give ops their meaning."""

import threading
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np

from lang_core._dtypes import DType
from lang_core._errors import CheckpointError, OpError, near_names
from lang_core._parameter import Parameter
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops import Op, Ops

R = TypeVar("R")
T = TypeVar("T", bound=Tensor)

# A composite's body in, what is called in its place out: with the same operands, for the same results.
Substitute = Callable[[Callable[..., Any]], Callable[..., Any]]


class Scope(threading.local):
    """Surroundings of the next op: each thread that uses a context has its own.

    Attributes:
        module_path: path of the module that runs now.
        source_line: Python line to which ops are attributed; the caller's if empty.
        given: tensors in place of weights, by path.
        substitutes: functions in place of the bodies of composites, by the composite's name.
        untagged: number of open ``untagged`` blocks.
    """

    def __init__(self) -> None:
        self.module_path = ""
        self.source_line = ""
        self.given: Mapping[str, Tensor] = {}
        self.substitutes: Mapping[str, Substitute] = {}
        self.untagged = 0


_NAMES: Final = {"isRecording": "is_recording", "is_recording": "isRecording"}


class _Alias:
    """Attribute of a class that stands for another one of the same object.

    Args:
        name: name of the other attribute.
        replaced: the class's attribute that this one replaces; None if there was none.
    """

    def __init__(self, name: str, replaced: Any = None) -> None:
        self.name, self.replaced = name, replaced
        self.__doc__ = f"Alias of ``{name}``."

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else getattr(instance, self.name)


class ContextMeta(ABCMeta):
    """Class of contexts' classes: ``isRecording`` and ``is_recording`` are one attribute under two names.

    Whichever name a class defines, when it is created or later, the other one stands for it.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> "ContextMeta":
        kind = super().__new__(cls, name, bases, namespace, **kwargs)
        for above in kind.__mro__:  # a base that is no context has one of the names alone
            names = [name for name in _NAMES if name in vars(above)]
            if names:
                if len(names) == 1:
                    super().__setattr__(kind, _NAMES[names[0]], _Alias(names[0]))
                break
        return kind

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        other = _NAMES.get(name)
        if other is None:
            return
        before = vars(cls).get(other)
        if not isinstance(value, _Alias):
            super().__setattr__(other, _Alias(name, before))
        elif (
            isinstance(before, _Alias) and before.replaced is not None
        ):  # as a test does that puts back what it has replaced
            super().__setattr__(other, before.replaced)

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        other = _NAMES.get(name)
        if other is not None and isinstance(vars(cls).get(other), _Alias):
            super().__delattr__(other)


class ExecutionContext(metaclass=ContextMeta):
    """Gives ops their meaning. Model code asks ``ctx.ops`` for ops and ``ctx.parameter`` for weights.

    Threads may share a context: the module path, the source line, ``parameters_from``, ``substituting`` and
    ``untagged`` belong to the thread that set them.

    Attributes:
        ops: every op as a method.
        array_types: classes of the arrays that ``admit`` turns into tensors.
    """

    array_types: tuple[type, ...] = (np.ndarray,)

    def __init__(self) -> None:
        self.ops = Ops(self)
        self._scope = Scope()
        self._muting = threading.Lock()
        self._mutes = 0  # open ``untagged`` blocks of all threads
        self._muted: dict[str, Any] = {}

    @property
    def module_path(self) -> str:
        """Path of the module that runs now, for names and messages."""
        return self._scope.module_path

    @module_path.setter
    def module_path(self, path: str) -> None:
        self._scope.module_path = path

    @property
    def source_line(self) -> str:
        """Python line to which ops are attributed, as ``file:line``; the caller's if empty."""
        return self._scope.source_line

    @source_line.setter
    def source_line(self, line: str) -> None:
        self._scope.source_line = line

    @property
    def isRecording(self) -> bool:
        """True if ops are recorded now rather than computed. A recording context overrides this."""
        return False

    @property
    def is_recording(self) -> bool:
        """Alias of ``isRecording``, in Python's spelling; a subclass overrides either, when it is made or later."""
        return False

    def admit(self, value: Any) -> Any:
        """Returns an array as a tensor of this context; every other value unchanged.

        Modules and composites call it for their arguments. A context that records returns arrays unchanged: their data
        must not enter a recording unseen.
        """
        return value

    def admit_all(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns values, and those in tuples among them, after ``admit``; the same tuple if it has none."""
        kinds = self.array_types
        for value in values:
            if isinstance(value, Tensor) or value is None:
                continue
            if isinstance(value, kinds) or type(value) is tuple:
                return tuple([self.admit_all(value) if type(value) is tuple else self.admit(value) for value in values])
        return values

    @abstractmethod
    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Computes or records one op; its results have the shapes of its shape rule.

        Inputs are of the shapes that the op's constraints allow; ``attributes`` are in the order of ``op.attributes``.
        """

    @abstractmethod
    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Returns a tensor of values known now. See ``ops.constant``."""

    def number(self, number: float, dtype: DType) -> Tensor:
        """Returns a rank-0 constant of a Python number (bool, int or float)."""
        return self.constant(number, dtype)

    @abstractmethod
    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """Returns a named input. See ``ops.placeholder``."""

    @abstractmethod
    def parameter(self, parameter: Parameter) -> Tensor:
        """Returns a weight, in the dtype and shape the module declared."""

    def parameter_or(self, parameter: Parameter, values: Any) -> Tensor:
        """Returns a weight, in its shape, or if the context knows its weights and they lack it, these values.

        Args:
            parameter: the parameter.
            values: array of its shape and dtype.
        """
        del values
        return self.parameter(parameter)

    @abstractmethod
    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Computes or records a loop: see ``ops.while_loop``."""

    @abstractmethod
    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Computes or records a branch: see ``ops.cond``."""

    @contextmanager
    def parameters_from(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Makes ``parameter`` give these tensors, by path, in place of weights of their shapes, to train arguments.

        Other weights are read as usual. Calls nest.
        """
        scope = self._scope
        given = {path: self.admit(tensor) for path, tensor in tensors.items()}
        before, scope.given = scope.given, {**scope.given, **given}
        try:
            yield
        finally:
            scope.given = before

    def _input_named(self, inputs: Mapping[str, R], name: str, needs: str) -> R:
        """Returns the input with a name.

        Raises:
            OpError: nothing was; ``needs`` describes the required value.
        """
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            raise OpError(f"placeholder {name!r}: {needs}; inputs given: {known}{near_names(name, inputs)}")
        return inputs[name]

    def _given_for(self, parameter: Parameter) -> Tensor | None:
        """Returns the tensor that ``parameters_from`` gives for a parameter, if any."""
        if not isinstance(parameter, Parameter):
            raise OpError(
                f"ctx.parameter: expected a Parameter; found {parameter!r} of type {type(parameter).__name__}"
            )
        tensors = self._scope.given
        given = tensors.get(parameter.path) if tensors else None
        if given is not None and not isinstance(given, Tensor):
            raise OpError(
                f"parameter {parameter.path!r}: parameters_from was given a {type(given).__name__}: give a tensor of "
                "this context"
            )
        if given is not None and given.spec != parameter.stored_spec:
            raise CheckpointError(
                f"parameter {parameter.path!r}: the model wants {parameter.stored_spec!r}, parameters_from was given "
                f"{given.spec!r}: give a tensor of the model's shape and dtype"
            )
        return given

    def composite(
        self, name: str, body: Callable[..., R], inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()
    ) -> R:
        """Returns ``body(*inputs, *attributes)``: ops that belong together, under a name.

        A recording notes which ops they are, so that a rule of the name may differentiate them as one
        (``compile_dag.gradient.composite_gradient``); ``substituting`` may have something else called in their place.

        Args:
            name: name of the composite.
            body: function that calls ops and returns a tensor or a tuple of tensors.
            inputs: tensors; None if one is left out.
            attributes: arguments that are known without running anything, such as an axis.
        """
        return self._body_of(name, body)(*self.admit_all(inputs), *attributes)

    def _body_of(self, name: str, body: Callable[..., R]) -> Callable[..., R]:
        """Returns the body of a composite, or its replacement."""
        substitutes = self._scope.substitutes
        substitute = substitutes.get(name) if substitutes else None
        return body if substitute is None else substitute(body)

    @contextmanager
    def substituting(self, substitutes: Mapping[str, Substitute]) -> Iterator[None]:
        """Substitutes the bodies of composites; the substitutes of an outer call do not apply inside.

        Args:
            substitutes: functions by the composite's name, each from the body to a function of the same operands.
        """
        scope = self._scope
        before, scope.substitutes = scope.substitutes, substitutes
        try:
            yield
        finally:
            scope.substitutes = before

    def tag(self, x: T, name: str, *, detail: bool = False) -> T:
        """Names a tensor, so that a dump can show it, and returns it.

        Its full name is that of the module that runs and its own: ``model.layers.3.self_attn.q``. Where nobody dumps
        this does nothing, and a recording has no trace of it.

        Args:
            x: tensor to name.
            name: name, unique in the module.
            detail: True if only a glob that ends in this very name selects it (``*.scores``, but not ``*``): for large
                tensors.
        """
        del name, detail
        return x

    def shows(self, name: str, *, detail: bool = False) -> bool:
        """Returns whether a tensor of this tag would be shown, for callers that would compute it for the tag alone."""
        del name, detail
        return False

    @contextmanager
    def untagged(self) -> Iterator[None]:
        """Hides this thread's tensors from the receiver of tags within a ``with`` block, for trials.

        Other threads that share the context keep their tags.
        """
        scope = self._scope
        with self._muting:
            if not self._mutes:
                self._mute()
            self._mutes += 1
        scope.untagged += 1
        try:
            yield
        finally:
            scope.untagged -= 1
            with self._muting:
                self._mutes -= 1
                if not self._mutes:
                    vars(self).update(self._muted)
                    for name in ("tag", "shows"):
                        if name not in self._muted:
                            del vars(self)[name]

    def _mute(self) -> None:
        """Puts functions in place of ``tag`` and ``shows`` that do nothing in threads with an open ``untagged``."""
        scope, tag, shows = self._scope, self.tag, self.shows

        def tag_unless_muted(x: T, name: str, *, detail: bool = False) -> T:
            return x if scope.untagged else tag(x, name, detail=detail)

        def shows_unless_muted(name: str, *, detail: bool = False) -> bool:
            return not scope.untagged and shows(name, detail=detail)

        self._muted = {name: vars(self)[name] for name in ("tag", "shows") if name in vars(self)}
        vars(self).update(tag=tag_unless_muted, shows=shows_unless_muted)

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Marks a repeated region, such as a decoder layer, as a unit of lowering. Blocks nest.

        An eager context ignores it; a recording one overrides it.
        """
        del name
        yield
