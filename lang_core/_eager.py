"""The eager context: ops compute, with NumPy, at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from lang_core._context import ExecutionContext
from lang_core._dtypes import DType, as_dtype, bool_, f32, i32, is_table_dtype, plain_bools
from lang_core._errors import CheckpointError, OpError
from lang_core._nesting import nests_regions
from lang_core._operands import operand_advice
from lang_core._parameter import Parameter
from lang_core._spec import TensorSpec
from lang_core._tags import tag_name
from lang_core._tensor import EagerTensor, Tensor
from lang_core._weights import WeightSource
from lang_core.ops import OPS, Op
from lang_core.ops._op import Specs

Array = np.ndarray[Any, Any]
T = TypeVar("T", bound=Tensor)

_NUMBERS_LIMIT: Final = 1024


def as_array(value: Any, dtype: DType | str | None = None) -> Array:
    """Copies a number, nested sequences or an array into an array of a table dtype.

    Without a dtype a Python float becomes f32 and an int i32; an array keeps its own.

    Raises:
        OpError: the values do not fit the dtype, or their own dtype is not one of the table's.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and (value is None or isinstance(value, str | bytes)):
        raise OpError(f"constant: {value!r} does not fit {wanted}: give a number, numbers, or an array")
    try:
        if hasattr(value, "__array__"):  # also of JAX or PyTorch: their arrays keep their dtypes too
            value = plain_bools(np.asarray(value))
            return np.array(value, dtype=wanted.numpy if wanted else as_dtype(value.dtype).numpy, order="C")
        kind = np.asarray(value).dtype.kind if wanted is None or wanted.is_integer else ""
        if wanted is None:
            wanted = {"f": f32, "i": i32, "b": bool_}.get(kind)
        array = np.array(value, dtype=wanted.numpy if wanted else None, order="C")
        if kind == "f" and wanted is not None and wanted.is_integer and not np.array_equal(array, value):
            raise TypeError("a fraction is no integer: round it, or make it floating and cast it")
    except (OverflowError, TypeError, ValueError) as error:
        raise OpError(f"constant: {value!r} does not fit {wanted or 'an array'}: {error}") from None
    as_dtype(array.dtype)
    return array


class EagerExecutionContext(ExecutionContext):
    """Computes every op at once. NumPy arrays are accepted wherever tensors are.

    Args:
        weights: where ``parameter`` reads; nothing is kept between reads.
        inputs: values of ``ops.placeholder``, by name.
        tag_sink: is given every tensor that the model tags, under its full name, at once.
    """

    def __init__(
        self,
        weights: WeightSource | None = None,
        inputs: Mapping[str, Array] | None = None,
        tag_sink: Callable[[str, EagerTensor], object] | None = None,
    ) -> None:
        super().__init__()
        self._tag_sink = tag_sink
        self._weights = weights
        self._inputs = dict(inputs or {})
        self._numbers: dict[tuple[DType, float], EagerTensor] = {}

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Checks the op's contract and computes it; results have the shapes of its shape rule."""
        borrowed: list[Array] | None = None
        try:
            for operand in inputs:
                if type(operand) is not EagerTensor:
                    inputs = tuple(self._tensor(op, value) for value in inputs)
                    borrowed = [operand.data for operand in inputs if type(operand) is _Borrowed]
                    break
            if len(inputs) == 1:  # a list for one or two operands takes longer than the rest
                x = inputs[0]
                operand_specs, data = (x.spec,), (x.data,)
            elif len(inputs) == 2:
                x, y = inputs
                operand_specs, data = (x.spec, y.spec), (x.data, y.data)
            else:
                operand_specs, data = tuple([x.spec for x in inputs]), tuple([x.data for x in inputs])
            specs = op.infer(operand_specs, attributes)
        except OpError as error:
            raise (OpError(f"{error} (at {self.module_path})") if self.module_path else error) from None
        results = op.eager_rule(*data, *attributes) if op.only_moves else _computed(op.eager_rule, data, attributes)
        if borrowed:
            results = _apart(results, borrowed)
        if type(results) is tuple:
            return tuple(map(EagerTensor, specs, results))
        return (EagerTensor(specs[0], results if type(results) is np.ndarray else np.asarray(results)),)

    def _tensor(self, op: Op, operand: Any) -> EagerTensor:
        if isinstance(operand, EagerTensor):
            return operand
        if type(operand) is np.ndarray:
            return _of_array(operand)
        if isinstance(operand, Tensor) or not isinstance(operand, np.ndarray | np.generic | bool | int | float):
            advice = operand_advice(operand)
            raise OpError(
                f"{op.name}: {advice}"
                if advice
                else f"{op.name}: an eager context takes its own tensors and NumPy arrays, found {operand!r}"
            )
        if not isinstance(operand, np.ndarray):
            array = as_array(operand)
            return EagerTensor(TensorSpec(array.shape, as_dtype(array.dtype)), array)
        return _of_array(operand)

    def admit(self, value: Any) -> Any:
        """Returns an array of a table dtype as a tensor; every other value unchanged."""
        if not isinstance(value, np.ndarray) or not is_table_dtype(value.dtype):
            return value
        return _of_array(value)

    def tag(self, x: T, name: str, *, detail: bool = False) -> T:
        """Hands the tensor to the sink, if there is one.

        Raises:
            OpError: the tensor is another context's.
        """
        if self._tag_sink is not None:
            self._tag_sink(tag_name(self.module_path, name), self._tensor(OPS["constant"], x))
        return x

    def shows(self, name: str, *, detail: bool = False) -> bool:
        """Returns whether there is a sink: it gets every tag."""
        return self._tag_sink is not None

    def constant(self, value: Any, dtype: DType | str | None = None) -> EagerTensor:
        """Returns a tensor that holds a copy of the value."""
        array = as_array(value.numpy() if isinstance(value, EagerTensor) else value, dtype)
        return EagerTensor(TensorSpec(array.shape, as_dtype(array.dtype)), array)

    def number(self, number: float, dtype: DType) -> EagerTensor:
        """Returns a constant that is shared by all who ask for the same number."""
        if not isinstance(number, int) and (number == 0 or number != number):
            return self.constant(number, dtype)  # comparison does not see zero's sign, nor find NaN again
        key = dtype, number
        tensor = self._numbers.get(key)
        if tensor is None:
            tensor = self.constant(number, dtype)
            tensor.data.flags.writeable = False
            if len(self._numbers) >= _NUMBERS_LIMIT:
                self._numbers.clear()
            self._numbers[key] = tensor
        return tensor

    def placeholder(self, name: str, spec: TensorSpec) -> EagerTensor:
        """Returns the array that was given as an input under this name.

        Raises:
            OpError: the array with the name is missing, or has another shape or dtype.
        """
        data = self._input_named(self._inputs, name, "an eager context needs its data")
        if data.shape != spec.shape or data.dtype != spec.dtype.numpy:
            raise OpError(f"placeholder {name!r}: wanted {spec!r}, found {data.dtype}{list(data.shape)}")
        data = plain_bools(data)
        return _Borrowed(spec, data) if _may_change(data) else EagerTensor(spec, data)

    def parameter(self, parameter: Parameter) -> EagerTensor:
        """Reads the weight and casts it to the parameter's dtype.

        Raises:
            CheckpointError: weights are missing, or the stored tensor has another shape or encoding.
            OpError: the given value is another context's tensor.
        """
        given = self._given_for(parameter)
        if given is not None:
            return self._tensor(OPS["constant"], given)
        path, spec = parameter.path, parameter.stored_spec
        if self._weights is None:
            raise CheckpointError(f"parameter {path!r}: this context has no weights: pass a WeightSource")
        stored = self._weights.spec(path)
        if stored.shape != spec.shape:
            where = self._weights.origin(path)
            raise CheckpointError(f"parameter {path!r}: the model wants {spec!r}, {where} has {stored!r}")
        if parameter.encoding is not None and stored.dtype is not spec.dtype:
            where = self._weights.origin(path)
            raise CheckpointError(f"parameter {path!r}: the model wants {parameter.encoding.name}, {where} is unpacked")
        with np.errstate(over="ignore"):
            return EagerTensor(spec, plain_bools(self._weights.read(path)).astype(spec.dtype.numpy, copy=False))

    def parameter_or(self, parameter: Parameter, values: Any) -> EagerTensor:
        """Returns the weight, or these values of its shape if the source lacks its path."""
        is_given = self._given_for(parameter) is not None
        if is_given or (self._weights is not None and self._weights.has(parameter.path)):
            return self.parameter(parameter)
        return self.constant(values)

    @nests_regions
    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Runs the loop in Python, checking each round's shapes and dtypes, which are those of ``init``.

        Raises:
            OpError: a tensor is another context's, or a round changes shapes or dtypes.
        """
        op = OPS["while"]
        values = tuple(self._tensor(op, value) for value in init)
        while True:
            proceed = self._tensor(op, cond(*values))
            rounds = _Results((proceed.spec,)), _Results(tuple(value.spec for value in values))
            op.infer_afresh(tuple(value.spec for value in values), (*rounds, len(values)))
            if not proceed.data:
                return tuple(map(_owned, values))
            after = tuple(self._tensor(op, value) for value in body(*values))
            rounds = rounds[0], _Results(tuple(value.spec for value in after))
            op.infer_afresh(tuple(value.spec for value in values), (*rounds, len(values)))
            values = after

    @nests_regions
    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Runs one of the branches; ``pred`` is rank-0 bool, and both give the same shapes and dtypes.

        Raises:
            OpError: a tensor is another context's, or the branches do not fit each other.
        """
        op = OPS["cond"]
        inputs = tuple(self._tensor(op, operand) for operand in (pred, *operands))
        chosen = on_true if inputs[0].spec.size == 1 and inputs[0].data else on_false
        results = tuple(self._tensor(op, value) for value in chosen(*inputs[1:]))
        branch = _Results(tuple(value.spec for value in results))
        op.infer_afresh(tuple(value.spec for value in inputs), (branch, branch))
        return tuple(map(_owned, results))


# IEEE 754 results are results, not warnings. As a decorator, errstate takes half as long as in a ``with`` statement.
@np.errstate(all="ignore")
def _computed(rule: Callable[..., Any], data: tuple[Array, ...], attributes: tuple[Any, ...]) -> Any:
    return rule(*data, *attributes)


class _Borrowed(EagerTensor):
    """Tensor with an array of the caller as data.

    The caller may write to it later, so results must not share its memory.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return EagerTensor, (self.spec, self.data)


_Borrowed.__name__ = EagerTensor.__name__  # as messages of other rooms call it


def _may_change(array: Array) -> bool:
    """Returns whether somebody may write to an array: mapped weights are read-only, down to their owner."""
    while True:
        if array.flags.writeable:
            return True
        if not isinstance(array.base, np.ndarray):
            return False
        array = array.base


def _of_array(operand: Array) -> EagerTensor:
    array = plain_bools(operand)
    kind = _Borrowed if array is operand and _may_change(array) else EagerTensor
    return kind(TensorSpec(array.shape, as_dtype(array.dtype)), array)


def _apart(results: Any, borrowed: list[Array]) -> Any:
    """Returns an op's results, as copies if they share memory with an array of the caller."""
    if type(results) is tuple:
        return tuple([_apart(result, borrowed) for result in results])
    if type(results) is np.ndarray:
        is_view = results.base is not None  # else the memory is its own, unless it is the caller's array itself
        for array in borrowed:
            if results is array or (is_view and np.may_share_memory(results, array)):
                return results.copy()
    return results


def _owned(tensor: EagerTensor) -> EagerTensor:
    return EagerTensor(tensor.spec, tensor.data.copy()) if type(tensor) is _Borrowed else tensor


class _Results:
    """Results of a region that has run: enough of a Region for a shape rule."""

    def __init__(self, result_specs: Specs) -> None:
        self.result_specs = result_specs

    def __repr__(self) -> str:
        return f"function -> {list(self.result_specs)}"
