"""The execution context with JAX arrays as tensors, and its ops."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from lang_core import (
    CheckpointError,
    DType,
    EagerExecutionContext,
    ExecutionContext,
    Op,
    OpError,
    Ops,
    Parameter,
    Tensor,
    TensorSpec,
    WeightSource,
    as_array,
    as_dtype,
    is_table_dtype,
    near_names,
    nests_regions,
    operand_advice,
    plain_bools,
    tag_name,
)
from run_jax._control import bounded_loop, branch, counted_loop, loop
from run_jax._indexing import overlapping_update
from run_jax._rules import RULES, convert
from run_jax._tensor import JaxTensor, is_traced, is_tracing_now, tensor_of


class _Context(Protocol):
    """Part of a JAX context that its ops call."""

    def tensor(self, value: Any) -> Tensor:
        """Returns a value as a tensor."""
        ...

    def counted_loop(
        self, stop: int, body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs a loop of known length."""
        ...

    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs a loop that data ends."""
        ...

    def bounded_loop(
        self,
        most: int,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Runs a loop that data ends after a known number of rounds at most."""
        ...


class JaxOps(Ops):
    """All ops, as methods. Numbers take the dtype of arrays of JAX beside them too, and counted loops are scans."""

    __slots__ = ()

    def fori_loop(self, stop: int, body: Callable[..., Sequence[Tensor]], init: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs ``body(i, *values)`` for the i32 i = 0 .. stop - 1; reverse mode goes through it."""
        return self._context.counted_loop(stop, body, tuple(init))

    def while_loop(
        self,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: Sequence[Tensor],
        most: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Runs a loop; reverse mode goes through it if ``most``, which its rounds cannot exceed, is given."""
        if most is None:
            return self._context.while_loop(cond, body, tuple(init))
        return self._context.bounded_loop(most, cond, body, tuple(init))

    @property
    def _context(self) -> _Context:
        return cast(_Context, self._ctx)

    def _lifted(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._context.tensor(value) if isinstance(value, jax.Array) else value for value in values)

    def _tensors(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        return super()._tensors(op, self._lifted(operands))

    def _starts(self, starts: Sequence[Any]) -> tuple[Any, ...]:
        return super()._starts(self._lifted(starts))


# ``rule(context, body, *operands, *attributes)``; it may call the body.
COMPOSITES: Final[dict[str, Callable[..., Any]]] = {}


def _along(function: Callable[..., Any], context: Any, x: Any, axis: int) -> Any:
    tensor: JaxTensor = context.tensor(x)
    wide = convert(tensor.data, tensor.dtype.accumulation)
    return JaxTensor(tensor.spec, convert(function(wide, axis=axis), tensor.dtype))


def _applies(x: Any, axis: int) -> bool:
    """Returns whether a call is plain: others are left to the ops, which report errors."""
    return as_dtype(x.dtype).is_floating and 0 not in x.shape and -x.ndim <= axis < x.ndim


def _softmax(context: Any, body: Callable[..., Any], x: Any, where: Any, axis: int) -> Any:
    if where is not None or not _applies(x, axis):
        return body(x, where, axis)
    return _along(jax.nn.softmax, context, x, axis)


def _log_softmax(context: Any, body: Callable[..., Any], x: Any, axis: int) -> Any:
    return _along(jax.nn.log_softmax, context, x, axis) if _applies(x, axis) else body(x, axis)


def _relu(context: Any, body: Callable[..., Any], x: Any) -> Any:
    """Returns max(x, 0) with the derivative 0 at 0; the derivative of a maximum is half there."""
    tensor: JaxTensor = context.tensor(x)
    return JaxTensor(tensor.spec, jax.nn.relu(tensor.data)) if tensor.dtype.is_floating else body(x)


COMPOSITES.update({"softmax": _softmax, "log_softmax": _log_softmax, "relu": _relu})


R = TypeVar("R")
T = TypeVar("T", bound=Tensor)

_HOST: Final = (bool, int, float, np.ndarray, np.generic)


class JaxExecutionContext(ExecutionContext):
    """Computes every op with JAX, at once or while JAX traces: inside of ``jit``, ``grad``, ``vmap``, ``shard_map``.

    Arrays of JAX and of NumPy are accepted wherever tensors are. Results have the op table's dtypes: nothing is
    promoted silently, and 64-bit dtypes are refused while JAX's are off.

    Args:
        parameters: arrays by parameter path, which functions of JAX may take as an argument (``parameter_arrays`` reads
            them), or a source of weights, which become constants of the traced function.
        inputs: values of ``ops.placeholder``, by name.
        tag_sink: is given every tensor that the model tags, under its full name; while JAX traces, without data.
    """

    array_types = (np.ndarray, jax.Array)

    def __init__(
        self,
        parameters: Mapping[str, Any] | WeightSource | None = None,
        inputs: Mapping[str, Any] | None = None,
        tag_sink: Callable[[str, JaxTensor], object] | None = None,
    ) -> None:
        super().__init__()
        self.ops = JaxOps(self)
        self._parameters = parameters
        self._inputs = dict(inputs or {})
        self._tag_sink = tag_sink
        self._roots = 0  # number of bits that tensors have

    @property
    def isRecording(self) -> bool:
        """True while JAX traces in this thread: values lack data then, and a path that needs data fails."""
        return is_tracing_now()

    def tensor(self, value: Any) -> JaxTensor:
        """Returns an array of JAX or NumPy, a number or a tensor of this kind of context as a tensor.

        Raises:
            OpError: the value is of another kind or of a dtype outside of the table, or its dtype has 64 bits and JAX's
                are off.
        """
        if type(value) is JaxTensor:
            tensor = value
        elif isinstance(value, jax.Array):
            tensor = tensor_of(value)
        elif isinstance(value, _HOST):
            array = plain_bools(value) if isinstance(value, np.ndarray) else as_array(value)
            require_width(as_dtype(array.dtype))
            tensor = tensor_of(jnp.array(array))
        else:
            advice = operand_advice(value)
            raise OpError(
                advice or f"a JAX context takes its own tensors, arrays of JAX and NumPy, and numbers; found {value!r}"
            )
        return tensor

    def admit(self, value: Any) -> Any:
        """Returns an array of a dtype that JAX computes in now as a tensor; every other value unchanged."""
        if not isinstance(value, jax.Array | np.ndarray) or not is_computed(value.dtype):
            return value
        return self.tensor(value)

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[JaxTensor, ...]:
        """Checks the op's contract and computes it by its rule, under the module's path in JAX's lowered text.

        Raises:
            OpError: the contract does not hold, a dtype needs 64 bits and JAX's are off, or the op lacks a rule here.
        """
        try:
            tensors = [self.tensor(operand) for operand in inputs]
            specs = op.infer(tuple(tensor.spec for tensor in tensors), attributes)
            for spec in (*specs, *(tensor.spec for tensor in tensors)):
                require_width(spec.dtype)
            if op.name not in RULES:
                raise OpError("this op has no rule for JAX's arrays: register one with run_jax.computes")
        except OpError as error:
            where = f" (at {self.module_path})" if self.module_path else ""
            text = str(error)
            raise OpError(f"{text if text.startswith(op.name) else f'{op.name}: {text}'}{where}") from None
        roots = self._roots_of(tensors) if is_tracing_now() else 0
        rule = RULES[op.name]
        if op.name == "dynamic_update_slice" and tensors[0].roots & tensors[1].roots:
            rule = overlapping_update
        # From an @ on, as labels of kernels have one, XLA drops the rest of a name.
        with jax.named_scope(self.module_path.replace("@", "~")) if self.module_path else nullcontext():
            results = rule(*(tensor.data for tensor in tensors), *attributes)
        results = results if type(results) is tuple else (results,)
        return tuple(_checked(op, spec, array, roots) for spec, array in zip(specs, results, strict=True))

    def _roots_of(self, tensors: Sequence[JaxTensor]) -> int:
        """Returns the traced arrays that tensors are computed from; one that is not known yet is its own."""
        roots = 0
        for tensor in tensors:
            if not tensor.roots and is_traced(tensor.data):
                tensor.roots = 1 << self._roots
                self._roots += 1
            roots |= tensor.roots
        return roots

    def composite(
        self, name: str, body: Callable[..., R], inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()
    ) -> R:
        """Returns ``body(*inputs, *attributes)``, or JAX's own function of that name if there is one."""
        rule = None if name in self._scope.substitutes else COMPOSITES.get(name)
        if rule is None:
            return super().composite(name, body, inputs, attributes)
        inputs = self.admit_all(inputs)
        results = rule(self, body, *inputs, *attributes)
        if is_tracing_now():
            self._derive(results, self._roots_of([value for value in inputs if isinstance(value, JaxTensor)]))
        return results

    def _derive(self, results: Any, roots: int) -> None:
        """Notes that results are computed from traced arrays."""
        for result in results if isinstance(results, tuple | list) else (results,):
            if isinstance(result, JaxTensor):
                result.roots |= roots

    def tag(self, x: T, name: str, *, detail: bool = False) -> T:
        """Hands the tensor to the sink, if there is one."""
        if self._tag_sink is not None:
            self._tag_sink(tag_name(self.module_path, name), self.tensor(x))
        return x

    def shows(self, name: str, *, detail: bool = False) -> bool:
        """Returns whether there is a sink: it gets every tag."""
        return self._tag_sink is not None

    def constant(self, value: Any, dtype: DType | str | None = None) -> JaxTensor:
        """Returns a tensor that holds a copy of the value; an array of JAX is cast, and stays differentiable."""
        if isinstance(value, JaxTensor | jax.Array):
            tensor = self.tensor(value)
            return tensor if dtype is None else self.tensor(self.ops.cast(tensor, dtype))
        return self.tensor(as_array(value, dtype))

    def number(self, number: float, dtype: DType) -> JaxTensor:
        """Returns a rank-0 constant, which JAX writes into traced functions as a literal."""
        require_width(dtype)
        return JaxTensor(TensorSpec((), dtype), as_array(number, dtype))

    def placeholder(self, name: str, spec: TensorSpec) -> JaxTensor:
        """Returns the array that was given as an input under this name.

        Raises:
            OpError: the array with the name is missing, or has another shape or dtype.
        """
        tensor = self.tensor(self._input_named(self._inputs, name, "a JAX context needs its array"))
        if tensor.spec != spec:
            raise OpError(f"placeholder {name!r}: wanted {spec!r}, found {tensor.spec!r}")
        return tensor

    def parameter(self, parameter: Parameter) -> JaxTensor:
        """Returns the weight, cast to the parameter's dtype.

        Raises:
            CheckpointError: the weight is missing or has another shape, or a packed weight has another dtype.
        """
        given = self._given_for(parameter)
        if given is not None:
            return self.tensor(given)
        path, spec = parameter.path, parameter.stored_spec
        if self._parameters is None:
            raise CheckpointError(f"parameter {path!r}: this context has no weights: pass parameters=")
        if not isinstance(self._parameters, Mapping):
            require_width(spec.dtype)
            return self.tensor(EagerExecutionContext(self._parameters).parameter(parameter).data)
        if path not in self._parameters:
            hint = near_names(path, self._parameters)
            raise CheckpointError(f"parameter {path!r}: not among the {len(self._parameters)} arrays given{hint}")
        tensor = self.tensor(self._parameters[path])
        same_kind = tensor.dtype is spec.dtype or (tensor.dtype.is_floating and spec.dtype.is_floating)
        if tensor.shape != spec.shape or not same_kind:
            raise CheckpointError(f"parameter {path!r}: the model wants {spec!r}, the array given is {tensor.spec!r}")
        require_width(spec.dtype)
        return tensor if tensor.dtype is spec.dtype else JaxTensor(spec, convert(tensor.data, spec.dtype))

    def parameter_or(self, parameter: Parameter, values: Any) -> JaxTensor:
        """Returns the weight, or these values if the source lacks its path."""
        known, path = self._parameters, parameter.path
        is_stored = known is not None and (path in known if isinstance(known, Mapping) else known.has(path))
        if is_stored or self._given_for(parameter) is not None:
            return self.parameter(parameter)
        return self.constant(values)

    @nests_regions
    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs the loop as ``jax.lax.while_loop``, which does not support reverse mode; shapes as of ``ops``."""
        return loop(self.tensor, cond, body, tuple(self.tensor(value) for value in init))

    @nests_regions
    def counted_loop(
        self, stop: int, body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs ``body(i, *values)`` for i = 0 .. stop - 1 as ``jax.lax.scan``, which has every transformation.

        The values keep the shapes and dtypes of ``init``; i is rank-0 i32.
        """
        return counted_loop(self.tensor, stop, body, tuple(self.tensor(value) for value in init))

    @nests_regions
    def bounded_loop(
        self,
        most: int,
        cond: Callable[..., Tensor],
        body: Callable[..., Sequence[Tensor]],
        init: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Runs a loop of at most so many rounds as ``jax.lax.scan``; its rounds are computed again in reverse mode.

        The values keep the shapes and dtypes of ``init``.
        """
        return bounded_loop(self.tensor, most, cond, body, tuple(self.tensor(value) for value in init))

    @nests_regions
    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Runs one of the branches, as ``jax.lax.cond``; ``pred`` is rank-0 bool, both give the same shapes."""
        inputs = tuple(self.tensor(operand) for operand in operands)
        return branch(self.tensor, self.tensor(pred), on_true, on_false, inputs)


def is_computed(dtype: Any) -> bool:
    """Returns whether an array's dtype is one of the op table's that JAX computes in now."""
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    return isinstance(dtype, np.dtype) and is_table_dtype(dtype) and (dtype.itemsize < 8 or wide)


def require_width(dtype: DType) -> None:
    """Checks that JAX computes in a dtype: without its 64-bit types it would take 32 bits silently.

    Raises:
        OpError: the dtype has 64 bits, and JAX's are off.
    """
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    if dtype.itemsize == 8 and not wide:
        raise OpError(
            f"{dtype} has 64 bits, and JAX computes in 32 until its 64-bit types are on: cast to "
            f"{'f32' if dtype.is_floating else 'i32'}, or call within jax.enable_x64(True)"
        )


def _checked(op: Op, spec: TensorSpec, array: Any, roots: int) -> JaxTensor:
    if tuple(array.shape) != spec.shape or array.dtype != spec.dtype.numpy:
        raise OpError(f"{op.name}: the rule for JAX gave {array.dtype}{list(array.shape)}, and the op gives {spec!r}")
    return JaxTensor(spec, array, roots)
