from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lang_core import (
    OPS,
    CheckpointError,
    EagerExecutionContext,
    EagerTensor,
    MappingWeights,
    Module,
    Op,
    OpError,
    Parameter,
    Tensor,
    TensorSpec,
    WeightSource,
    f32,
    f64,
)


class Scale(Module):
    def __init__(self, size: int, dtype: str = "f32") -> None:
        self.weight = Parameter((size,), dtype)

    def forward(self, ctx: Any, x: Any) -> Any:
        return ctx.ops.mul(x, ctx.parameter(self.weight))


class Model(Module):
    def __init__(self, size: int = 3, dtype: str = "f32") -> None:
        self.layers = [Scale(size, dtype), Scale(size, dtype)]

    def forward(self, ctx: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(ctx, x)
        return x


def weights_of(*values: Any) -> MappingWeights:
    return MappingWeights({f"layers.{i}.weight": np.asarray(value, np.float32) for i, value in enumerate(values)})


def test_a_model_runs_on_its_weights() -> None:
    source = weights_of([1, 2, 3], [10, 10, 10])
    assert isinstance(source, WeightSource)
    result = Model()(EagerExecutionContext(source), np.ones(3, np.float32))
    assert result.numpy().tolist() == [10, 20, 30]


def test_weights_are_cast_to_the_dtype_that_the_module_declares() -> None:
    weight = EagerExecutionContext(weights_of([1e6, 0.1, -1e6], [0, 0, 0])).parameter(
        Model(dtype="f16").layers[0].weight
    )
    assert weight.dtype.name == "f16"
    assert weight.numpy().tolist() == [np.inf, np.float16(0.1), -np.inf]


def test_a_parameter_that_no_weights_have_gets_the_values_given() -> None:
    weight, values = Scale(3).weight, np.array([1, 2, 3], np.float32)
    for weights in (None, MappingWeights({})):
        np.testing.assert_array_equal(EagerExecutionContext(weights).parameter_or(weight, values).numpy(), values)
    ctx = EagerExecutionContext(MappingWeights({"weight": values * 5}))
    np.testing.assert_array_equal(ctx.parameter_or(weight, values).numpy(), values * 5)
    with ctx.parameters_from({"weight": ctx.constant(values * 7)}):
        np.testing.assert_array_equal(ctx.parameter_or(weight, values).numpy(), values * 7)
    with pytest.raises(CheckpointError, match=r"parameter 'weight': the model wants f32\[3\]"):
        EagerExecutionContext(MappingWeights({"weight": np.ones(4, np.float32)})).parameter_or(weight, values)


def test_parameter_errors_name_the_parameter() -> None:
    parameter = Model(size=4).layers[1].weight
    with pytest.raises(
        CheckpointError, match=r"parameter 'layers.1.weight': this context has no weights: pass a WeightS"
    ):
        EagerExecutionContext().parameter(parameter)
    with pytest.raises(CheckpointError, match=r"memory: no tensor 'layers\.1\.weight'; did you mean"):
        EagerExecutionContext(weights_of([1])).parameter(parameter)
    with pytest.raises(CheckpointError, match=r"'layers.1.weight': the model wants f32\[4\], memory has f32\[3\]"):
        EagerExecutionContext(weights_of([1], [1, 2, 3])).parameter(parameter)


def test_placeholders_are_the_given_inputs() -> None:
    ctx = EagerExecutionContext(inputs={"tokens": np.arange(3, dtype=np.int32)})
    assert ctx.ops.placeholder("tokens", (3,), "i32").numpy().tolist() == [0, 1, 2]
    with pytest.raises(OpError, match=r"'token': an eager context needs its data; inputs given: tokens; did you mean"):
        ctx.ops.placeholder("token", (3,), "i32")
    with pytest.raises(OpError, match="inputs given: none"):
        EagerExecutionContext().ops.placeholder("tokens", (3,), "i32")
    for shape, dtype in (((2,), "i32"), ((3,), "i64")):
        with pytest.raises(OpError, match=rf"placeholder 'tokens': wanted {dtype}\[{shape[0]}\], found int32\[3\]"):
            ctx.ops.placeholder("tokens", shape, dtype)


def test_numpy_arrays_are_welcome_and_read_only_ones_not_copied() -> None:
    ops: Any = EagerExecutionContext().ops
    x = np.frombuffer(np.arange(6, dtype=np.float32).tobytes(), np.float32).reshape(2, 3)
    turned = ops.transpose(x).numpy()
    assert np.shares_memory(turned, x)  # as mapped weights are
    assert ops.add(x, ops.constant(1.0)).numpy().tolist() == (x + 1).tolist()
    assert ops.exp(np.float64(0)).dtype.name == "f64"
    assert ops.exp(0.0).dtype.name == "f32"


def test_results_are_arrays_and_not_numpy_scalars() -> None:
    ops: Any = EagerExecutionContext().ops
    for result in (ops.add(np.float32(1), np.float32(2)), ops.sum(np.ones(3)), ops.constant(np.int32(4))):
        assert isinstance(result, EagerTensor)
        assert type(result.data) is np.ndarray


@pytest.mark.parametrize("operand", [None, "text", [1.0, 2.0], 1j, object()], ids=str)
def test_other_operands_are_refused(operand: Any) -> None:
    with pytest.raises(
        OpError, match=r"exp: (.* is not a tensor|an eager context takes its own tensors .*, found <obj)"
    ):
        EagerExecutionContext().ops.exp(operand)


def test_a_tensor_of_another_kind_of_context_is_refused() -> None:
    class Foreign(Tensor):
        __slots__ = ()

    foreign = Foreign()
    foreign.spec = TensorSpec((), "f32")
    with pytest.raises(OpError, match="exp: an eager context takes its own tensors"):
        EagerExecutionContext().ops.exp(foreign)


def test_a_dtype_outside_the_table_is_refused() -> None:
    with pytest.raises(OpError, match="unknown dtype 'int16': known are f16, bf16"):
        EagerExecutionContext().ops.add(np.ones(2, np.int16), 1)


class Fails(Module):
    def __init__(self, operand: Any) -> None:
        self.inner = Scale(3)
        self.operand = operand

    def forward(self, ctx: Any, x: Any) -> Any:
        self.inner(ctx, x)
        return ctx.ops.add(x, self.operand)


@pytest.mark.parametrize(
    "operand", [np.ones(2, np.float32), np.ones(3, np.int16), "text"], ids=["shape", "dtype", "kind"]
)
def test_errors_say_at_which_module_path(operand: Any) -> None:
    class Root(Module):
        def __init__(self) -> None:
            self.parts = [Scale(3), Fails(operand)]

        def forward(self, ctx: Any, x: Any) -> Any:
            return self.parts[1](ctx, x)

    weights = MappingWeights({"parts.1.inner.weight": np.ones(3, np.float32)})
    ctx = EagerExecutionContext(weights)
    with pytest.raises(OpError, match=r" \(at parts\.1\)$"):
        Root()(ctx, np.ones(3, np.float32))
    assert ctx.module_path == ""


def test_eager_tensors_are_python_numbers_and_arrays() -> None:
    ops = EagerExecutionContext().ops
    one = ops.constant([[3]])
    assert (int(one), float(one), bool(one), [0, 1, 2, 4][one]) == (3, 3.0, True, 4)
    assert np.asarray(one, np.float64).dtype == np.float64
    assert np.array(one, copy=True).base is not one.numpy()
    assert repr(one) == "EagerTensor(i32[1,1], array([[3]], dtype=int32))"
    with pytest.raises(OpError, match=r"bool\(\) needs a tensor of one element, found f32\[2\]"):
        bool(ops.zeros((2,), "f32"))
    with pytest.raises(OpError, match=r"a tensor \(f32\[2\]\) is no Python sequence: use ctx.ops.split"):
        list(ops.zeros((2,), "f32"))
    with pytest.raises(OpError, match=r"== between tensors \(i32\[1,1\]\) is an op: use ctx.ops.equal"):
        _ = one == 3


def test_the_block_of_an_eager_context_changes_nothing() -> None:
    ctx = EagerExecutionContext()
    with ctx.block("layer"):
        assert ctx.ops.add(1.0, ctx.ops.constant(2.0)).numpy() == 3
    assert OPS["add"].name == "add"


def test_shared_numbers_keep_the_sign_of_zero_and_nan() -> None:
    ctx: Any = EagerExecutionContext()
    kinds: list[Any] = [float, np.float64, np.float32, ml_dtypes.bfloat16]
    for kind in kinds:
        signs = [np.signbit(ctx.number(kind(value), f32).numpy()).item() for value in (0.0, -0.0, 0.0, -0.0)]
        assert signs == [False, True, False, True], kind
        assert np.isnan(ctx.number(kind("nan"), f32).numpy())
    assert [ctx.number(value, f64).numpy().item() for value in (2**53, 2.0**53, True, 1)] == [2**53, 2**53, 1, 1]


def test_ops_leave_the_callers_floating_point_settings() -> None:
    ops = EagerExecutionContext().ops
    with np.errstate(all="raise"):
        before = np.geterr()
        x = ops.constant([1.0, np.inf], "f32")
        assert np.isnan(ops.sub(ops.div(x, 0.0), x).numpy()).tolist() == [False, True]
        with pytest.raises(OpError):
            ops.reshape(x, (3,))
        assert np.geterr() == before


def test_ops_inside_of_ops_leave_them_too() -> None:
    ctx = EagerExecutionContext()

    def rule(x: Any) -> Any:
        return ctx.ops.exp(x).numpy() / np.zeros_like(x)

    inner = Op("test.inner", summary="", shape_rule=lambda x: (x,), eager_rule=rule)
    with np.errstate(all="raise"):
        (result,) = ctx.apply(inner, (np.ones(2, np.float32),))
    assert np.isinf(result.numpy()).all()
