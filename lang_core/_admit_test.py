"""Arrays become tensors at the door of a module and of a composite."""

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lang_core import (
    DTYPES,
    EagerExecutionContext,
    EagerTensor,
    ExecutionContext,
    Module,
    OperatorError,
    OpError,
    Parameter,
    Tensor,
    as_array,
)

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


class Fast(Module):
    """tanh: by NumPy where there is data, else by ops."""

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Any:
        if not ctx.isRecording:
            return np.tanh(x.numpy())
        return ctx.ops.tanh(x)


class Sees(Module):
    """Returns its arguments, as they are."""

    def forward(self, ctx: ExecutionContext, *args: Any, **kwargs: Any) -> Any:
        self.args, self.kwargs = args, kwargs
        return None


class Hands(Module):
    def forward(self, ctx: ExecutionContext, value: Any) -> Any:
        return value


def test_the_fast_path_of_a_module_takes_and_gives_arrays() -> None:
    ctx = EagerExecutionContext()
    y = Fast()(ctx, ARRAY)
    assert isinstance(y, EagerTensor)
    assert y.numpy().tobytes() == np.tanh(ARRAY).tobytes()
    with pytest.raises(OperatorError, match=r"ctx\.ops\.mul"):
        _ = Fast()(ctx, ARRAY) * 2.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arguments_are_tensors_of_the_array_s_dtype(dtype: Any) -> None:
    seen = Sees()
    array = np.ones((2, 1), dtype.numpy)
    seen(EagerExecutionContext(), array, (array, (array, 1)), mask=array, pair=(array, None))
    first, (second, (third, one)) = seen.args
    tensors = [first, second, third, seen.kwargs["mask"], seen.kwargs["pair"][0]]
    assert all(
        isinstance(tensor, EagerTensor) and tensor.dtype is dtype and tensor.shape == (2, 1) for tensor in tensors
    )
    assert one == 1
    assert seen.kwargs["pair"][1] is None


def test_what_is_no_tensor_stays_as_it_is() -> None:
    seen = Sees()
    values = [3, 0.5, True, None, "text", np.float32(2), np.int64(1), [ARRAY], {"k": ARRAY}, ()]
    values += [np.array(["text"]), np.ones(2, np.uint16), np.array([None])]
    seen(EagerExecutionContext(), *values)
    assert all(after is before for after, before in zip(seen.args, values, strict=True))


def test_mapped_and_read_only_arrays() -> None:
    array = ARRAY.copy()
    array.flags.writeable = False
    seen = Sees()
    seen(EagerExecutionContext(), array, ARRAY[:, ::2], ARRAY[:0], np.array(2.0, np.float32))
    assert [tensor.shape for tensor in seen.args] == [(2, 3), (2, 2), (0, 3), ()]


def test_results_are_tensors() -> None:
    ctx = EagerExecutionContext()
    first, (second, third) = Hands()(ctx, (ARRAY, (ARRAY, "kept")))
    assert isinstance(first, EagerTensor)
    assert isinstance(second, EagerTensor)
    assert third == "kept"


def test_an_admitted_array_is_an_eager_tensor_in_messages_and_copies() -> None:
    tensor = EagerExecutionContext().admit(ARRAY)
    assert type(tensor).__name__ == "EagerTensor"
    for copied in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):  # noqa: S301 - our own bytes
        assert type(copied) is EagerTensor
        assert copied.numpy().tolist() == ARRAY.tolist()


def test_a_result_does_not_change_with_the_caller_s_array() -> None:
    array, ctx = ARRAY.copy(), EagerExecutionContext()

    class Reshapes(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            return ctx.ops.reshape(x, (6,))

    y = Reshapes()(ctx, array)
    array[:] = 7
    assert y.numpy().tolist() == ARRAY.reshape(6).tolist()


def test_a_composite_gets_tensors() -> None:
    ctx = EagerExecutionContext()

    def body(x: Any, scale: Any) -> Tensor:
        assert isinstance(x, EagerTensor)
        return ctx.ops.mul(ctx.ops.cast(x, x.dtype), scale)

    assert ctx.composite("test.scaled", body, (ARRAY, 2.0)).numpy().tolist() == (ARRAY * 2).tolist()


def test_parameters_from_takes_arrays() -> None:
    class Weighted(Module):
        def __init__(self) -> None:
            self.weight = Parameter((2, 3))

        def forward(self, ctx: ExecutionContext) -> Tensor:
            return ctx.ops.negate(ctx.parameter(self.weight))

    ctx, model = EagerExecutionContext(), Weighted()
    arrays: Any = {"weight": ARRAY}
    with ctx.parameters_from(arrays):
        assert model(ctx).numpy().tolist() == (-ARRAY).tolist()
    for wrong in ([1.0], 2.0, np.array(["text"])):
        arrays = {"weight": wrong}
        with (
            ctx.parameters_from(arrays),
            pytest.raises(OpError, match="parameter 'weight': parameters_from"),
        ):
            model(ctx)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, np.int64, np.uint8])
def test_arrays_of_other_libraries_keep_their_dtype(dtype: Any) -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.ones(3, kind)

    kind = dtype
    assert as_array(Foreign()).dtype == dtype
