import numpy as np
import pytest

from compile_dag import evaluate, record, verify
from compile_dag.gradient import RULES, gradient, gradient_of, value_and_gradient
from compile_dag.gradient._checks import normal
from lang_core import EagerExecutionContext, GraphError, MappingWeights, Module, Op, Parameter, TensorSpec

VECTOR = TensorSpec((3,), "f32")


class Scale(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,), "f32")
        self.unused = Parameter((2, 3), "f32")

    def forward(self, ctx, x):
        with ctx.block("layers.0"):
            return ctx.ops.mul(ctx.parameter(self.weight), x)


TWOS = MappingWeights({"weight": np.full(3, 2.0, np.float32)})


def tied(ctx, x):
    """The parameter is read twice."""
    scale = Scale()
    return {"loss": ctx.ops.sum(scale(ctx, scale(ctx, x))), "twice": ctx.ops.mul(x, 2.0)}


def test_of_a_graph_with_respect_to_inputs_and_parameters() -> None:
    graph = gradient(record(tied, VECTOR, name="f"), "loss", ["x", "weight"])
    assert list(graph.outputs) == ["loss", "twice", "gradient.x", "gradient.weight"]
    verify(graph)
    ctx = EagerExecutionContext(TWOS)
    outputs = evaluate(graph, ctx, {"x": ctx.constant(np.array([1, 2, 3], np.float32))})
    assert outputs["gradient.x"].numpy().tolist() == [4, 4, 4]
    assert outputs["gradient.weight"].numpy().tolist() == [4, 8, 12]


def test_of_a_function_with_respect_to_parameters() -> None:
    ctx = EagerExecutionContext(TWOS)
    outputs, (of_weight, of_x) = value_and_gradient(tied, wrt=("weight", 0), of="loss")(
        ctx, ctx.constant(np.array([1, 2, 3], np.float32))
    )
    assert float(outputs["loss"].numpy()) == 24
    assert outputs["twice"].numpy().tolist() == [2, 4, 6]
    assert of_weight.numpy().tolist() == [4, 8, 12]
    assert of_x.numpy().tolist() == [4, 4, 4]


def test_backward_ops_stand_in_blocks_of_their_own_and_keep_path_and_line() -> None:
    graph = gradient(record(tied, VECTOR), "loss", ["weight"])
    behind = [node for node in graph.nodes if node.block == "layers.0.backward"]
    assert {node.op.name for node in behind} == {"mul"}
    assert {node.line.rpartition(":")[0] for node in graph.nodes if node.op.name == "mul"} == {__file__}
    assert len({node.stretch for node in behind}) == 2


def test_a_step_recorded_with_parameters_as_arguments() -> None:
    """Forward, backward and update in one function; the arguments' mapping gives the gradients' form."""

    def loss(ctx, parameters, x):
        with ctx.parameters_from(parameters):
            return ctx.ops.sum(Scale()(ctx, Scale()(ctx, x)))

    def step(ctx, weight, x):
        value, (gradients,) = value_and_gradient(loss)(ctx, {"weight": weight}, x)
        return {"loss": value, "weight": ctx.ops.sub(weight, ctx.ops.mul(gradients["weight"], 0.5))}

    ctx = EagerExecutionContext()
    arguments = [ctx.constant(np.array(x, np.float32)) for x in ([2, 2, 2], [1, 2, 3])]
    graph = record(step, VECTOR, VECTOR)
    for outputs in (step(ctx, *arguments), evaluate(graph, ctx, dict(zip(graph.inputs, arguments, strict=True)))):
        assert float(outputs["loss"].numpy()) == 24
        assert outputs["weight"].numpy().tolist() == [0, -2, -4]


def test_the_gradient_of_a_gradient() -> None:
    """d/dx sum((d/dx sum(exp(x) x))^2) in both forms, against the formula."""

    def slope(ctx, x):
        _, (inner,) = value_and_gradient(lambda ctx, x: ctx.ops.sum(ctx.ops.mul(ctx.ops.exp(x), x)))(ctx, x)
        return ctx.ops.sum(ctx.ops.mul(inner, inner))

    x = normal(4)
    ctx = EagerExecutionContext()
    _, (direct,) = value_and_gradient(slope)(ctx, ctx.constant(x))
    graph = gradient(record(slope, TensorSpec((4,), "f64")), "result", ["x"])
    by_graph = evaluate(graph, ctx, {"x": ctx.constant(x)})["gradient.x"]
    wanted = 2 * np.exp(x) * (x + 1) * np.exp(x) * (x + 2)
    np.testing.assert_allclose(direct.numpy(), wanted, rtol=1e-12)
    np.testing.assert_allclose(by_graph.numpy(), wanted, rtol=1e-12)


def test_what_has_no_influence_has_zeros() -> None:
    graph = gradient(record(lambda ctx, x, y: ctx.ops.sum(x), VECTOR, VECTOR, input_names=["x", "y"]), "result", ["y"])
    ctx = EagerExecutionContext()
    outputs = evaluate(graph, ctx, {name: ctx.ops.ones((3,), "f32") for name in ("x", "y")})
    assert outputs["gradient.y"].numpy().tolist() == [0, 0, 0]


def test_an_argument_that_is_returned_and_one_that_is_the_loss() -> None:
    ctx = EagerExecutionContext()
    (returned, _), (slope,) = value_and_gradient(lambda ctx, x, y: (x, y), of=0)(
        ctx, ctx.constant(3.0), ctx.constant(4.0)
    )
    assert (float(returned), float(slope)) == (3, 1)


@pytest.mark.parametrize(
    ("of", "wrt", "message"),
    [
        ("los", ["x"], r"graph 'f' has no output 'los'.*did you mean 'loss'"),
        (
            "twice",
            ["x"],
            r"the gradient of 'twice' of 'f' was asked for, and it is f32\[3\]: reduce it to one",
        ),
        ("count", ["x"], r"the gradient of 'count' of 'f' was asked for, and it is i32\[\]: reduce it to one"),
        ("loss", ["weigth"], r"graph 'f' has no input or parameter 'weigth'.*did you mean 'weight'"),
        ("loss", ["n"], r"with respect to 'n' of 'f' was asked for, and it is i32\[\]: only floating"),
    ],
)
def test_what_cannot_be_asked_of_a_graph(of: str, wrt: list[str], message: str) -> None:
    def fn(ctx, x, n):
        return {**tied(ctx, x), "count": ctx.ops.add(n, 1)}

    graph = record(fn, VECTOR, TensorSpec((), "i32"), name="f", input_names=["x", "n"])
    with pytest.raises(GraphError, match=message):
        gradient(graph, of, wrt)


@pytest.mark.parametrize(
    ("of", "wrt", "message"),
    [
        (None, (0,), r"value_and_gradient\(tied\): of=None is not among its results: loss, twice"),
        ("twice", (0,), r"the gradient of 'twice' of 'tied' was asked for, and it is f32\[3\]"),
        ("loss", (1,), r"value_and_gradient\(tied\): wrt has 1, and there are 1 arguments"),
        ("loss", ("weigth",), r"value_and_gradient\(tied\): no parameter 'weigth' is read; did you mean 'weight'"),
    ],
)
def test_what_cannot_be_asked_of_a_function(of, wrt, message: str) -> None:
    ctx = EagerExecutionContext(TWOS)
    with pytest.raises(GraphError, match=message):
        value_and_gradient(tied, wrt, of)(ctx, ctx.ops.ones((3,), "f32"))


ODD = Op("odd", summary="An op of no table.", shape_rule=lambda x: (x,), eager_rule=lambda x: x)


def test_an_op_without_a_rule_is_named() -> None:
    graph = record(lambda ctx, x: ctx.ops.sum(ctx.apply(ODD, (x,))[0]), VECTOR, input_names=["x"])
    message = r"the op 'odd' \(at the root, .*_api_test.py:\d+\) has no gradient rule: register one with @gradient_of"
    with pytest.raises(GraphError, match=message):
        gradient(graph, "result", ["x"])


def test_a_rule_that_returns_too_little_is_named() -> None:
    gradient_of("odd")(lambda step, g: ())
    try:
        graph = record(lambda ctx, x: ctx.ops.sum(ctx.apply(ODD, (x,))[0]), VECTOR, input_names=["x"])
        with pytest.raises(GraphError, match=r"the gradient rule of 'odd' returned 0 functions for 1 inputs \(at the"):
            gradient(graph, "result", ["x"])
    finally:
        del RULES["odd"]
