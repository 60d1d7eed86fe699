"""Execution on specs: contracts are checked, nothing is computed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lang_core import OPS, DType, ExecutionContext, Op, OpError, Parameter, Tensor, TensorSpec, as_array, as_dtype


class SpecTensor(Tensor):
    """Tensor with a spec but without data."""

    __slots__ = ()

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        return f"SpecTensor({self.spec!r})"


class SpecContext(ExecutionContext):
    """Context that applies the shape rules of ops only."""

    @property
    def isRecording(self) -> bool:
        """True: values lack data, so a path that needs data fails."""
        return True

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Returns the specs of the results."""
        try:
            specs = op.infer(tuple([_spec(operand) for operand in inputs]), attributes)
        except OpError as error:
            raise (OpError(f"{error} (at {self.module_path})") if self.module_path else error) from None
        return tuple(map(SpecTensor, specs))

    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Returns a tensor of the value's spec."""
        array = as_array(value, dtype)
        return SpecTensor(TensorSpec(array.shape, as_dtype(array.dtype)))

    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """Returns a tensor of this spec."""
        del name
        return SpecTensor(spec)

    def parameter(self, parameter: Parameter) -> Tensor:
        """Returns a tensor of the parameter's spec, packed if it has an encoding."""
        given = self._given_for(parameter)
        return SpecTensor(parameter.stored_spec) if given is None else given

    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Checks one round of the loop."""
        values = tuple(SpecTensor(_spec(value)) for value in init)
        rounds = _Results([cond(*values)]), _Results(body(*values))
        OPS["while"].infer_afresh(tuple(value.spec for value in values), (*rounds, len(values)))
        return values

    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Checks both branches."""
        branches = [_Results(branch(*operands)) for branch in (on_true, on_false)]
        OPS["cond"].infer_afresh(tuple(map(_spec, (pred, *operands))), tuple(branches))
        return tuple(map(SpecTensor, branches[0].result_specs))


class _Results:
    """Result specs of a region, for shape rules."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        self.result_specs = tuple(map(_spec, values))

    def __repr__(self) -> str:
        return f"function -> {list(self.result_specs)}"


def _spec(value: Any) -> TensorSpec:
    if isinstance(value, Tensor):
        return value.spec
    array = value if isinstance(value, np.ndarray | np.generic) else as_array(value)
    return TensorSpec(array.shape, as_dtype(array.dtype))
