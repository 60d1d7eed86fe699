import pytest

from compile_dag import GraphExecutionContext, Node
from lang_core import (
    RecordingError,
    Tensor,
)


class Events:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def node(self, node: Node) -> None:
        self.events.append(node.op.name)

    def open_block(self, name: str) -> None:
        self.events.append(f"<{name}>")

    def close_block(self, name: str) -> None:
        self.events.append(f"</{name}>")


def test_ops_outside_of_a_recording() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
    for call in (lambda: ctx.ops.exp(x), lambda: ctx.ops.while_loop(lambda v: v, lambda v: (v,), (x,))):
        with pytest.raises(
            RecordingError, match=r"^(exp|while) \(at .*\): Value.*belongs to a recording that has ended"
        ):
            call()
    assert [ctx.ops.iota((3,)).numpy().tolist(), float(ctx.ops.exp(0.0))] == [[0, 1, 2], 1.0]


def test_blocks_nest_and_nodes_carry_the_innermost() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording(include_nested=True) as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.block("layers.0"):
            ctx.ops.exp(x)
            with ctx.block("layers.0.mlp"):
                ctx.ops.sin(x)
            with ctx.recording():
                ctx.ops.cos(x)
        ctx.ops.tanh(x)
    blocks = {node.op.name: node.block for node in tape.nodes}
    assert blocks == {"exp": "layers.0", "sin": "layers.0.mlp", "cos": "layers.0", "tanh": ""}


@pytest.mark.parametrize("include_nested", [False, True])
def test_a_block_inside_of_an_op_does_not_interrupt_the_one_around(include_nested: bool) -> None:
    ctx = GraphExecutionContext()

    def body(v: Tensor) -> tuple[Tensor]:
        with ctx.block("inside"):
            return (ctx.ops.sin(v),)

    with ctx.recording(include_nested=include_nested) as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.block("around"):
            ctx.ops.exp(x)
            ctx.ops.while_loop(lambda v: ctx.ops.any(ctx.ops.less(v, 0.0)), body, (x,))
            ctx.ops.cos(x)
    before, loop, after = tape.nodes
    assert before.stretch == loop.stretch == after.stretch
    assert before.block == "around"
    assert loop.attribute("body").nodes[0].block == "inside"


def test_a_block_needs_a_name() -> None:
    with pytest.raises(RecordingError, match=r"block\(''\): a block needs a name"), GraphExecutionContext().block(""):
        pass


def test_an_exception_leaves_a_block() -> None:
    ctx, sink = GraphExecutionContext(), Events()
    with ctx.recording(sink):
        with pytest.raises(ZeroDivisionError), ctx.block("a"), ctx.block("b"):
            raise ZeroDivisionError
        ctx.ops.iota((3,))
    assert sink.events == ["<a>", "<b>", "</b>", "</a>", "iota"]


def test_a_sink_takes_the_events_in_order_and_the_tape_keeps_none() -> None:
    ctx, sink = GraphExecutionContext(), Events()
    with ctx.recording(sink) as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.block("a"):
            y = ctx.ops.exp(x)
            with ctx.block("b"):
                ctx.ops.sin(y)
        ctx.ops.cos(y)
    assert sink.events == ["<a>", "exp", "<b>", "sin", "</b>", "</a>", "cos"]
    assert tape.nodes == []
    assert list(tape.inputs) == ["x"]
    with pytest.raises(RecordingError, match=r"to_compute_graph\('main'\): the recording's sink took the nodes"):
        tape.to_compute_graph({"y": y})


def test_a_sink_that_includes_nested_recordings_hears_of_their_blocks_but_not_of_the_inside_of_an_op() -> None:
    ctx, outer, inner = GraphExecutionContext(), Events(), Events()

    def body(v: Tensor) -> tuple[Tensor]:
        with ctx.block("inside"):
            return (ctx.ops.sin(v),)

    with ctx.recording(outer, include_nested=True):
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with ctx.recording(inner), ctx.block("a"):
            ctx.ops.while_loop(lambda v: ctx.ops.any(ctx.ops.less(v, 0.0)), body, (x,))
    assert outer.events == inner.events == ["<a>", "while", "</a>"]


def test_a_sink_that_fails_to_open_a_block_leaves_none_open() -> None:
    class Failing(Events):
        def open_block(self, name: str) -> None:
            raise OSError("the disk is full")

    ctx, inner = GraphExecutionContext(), Events()
    with ctx.recording(Failing(), include_nested=True), ctx.recording(inner) as tape:
        del tape
        with pytest.raises(OSError, match="the disk is full"), ctx.block("a"):
            pass
        ctx.ops.iota((3,))
    assert inner.events == ["<a>", "</a>", "iota"]
    with ctx.recording() as tape:
        ctx.ops.iota((3,))
    assert tape.nodes[0].block == ""
