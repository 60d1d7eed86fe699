"""Recording: ops onto a tape, the tape into a graph.

>>> from compile_dag import RecordingSink, record
>>> from lang_core import TensorSpec
>>> graph = record(lambda ctx, x: ctx.ops.mul(x, x), TensorSpec((2, 3), "f32"), name="square")
>>> list(graph.inputs), list(graph.outputs), len(graph.nodes)
(['x'], ['result'], 1)
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from compile_dag._context import GraphExecutionContext
    from compile_dag._evaluate import evaluate, replay
    from compile_dag._graph import ComputeGraph, regions_of
    from compile_dag._graph_ops import PARAMETER, TAG, TagInfo, has_tags, line_in_package, tag_info, tags_of
    from compile_dag._node import Call, Node, Recording, Stretch, Value
    from compile_dag._record import RecordingSink, record
    from compile_dag._tape import Sink, Tape
    from compile_dag._verify import verify, verify_stretch

export_lazily(__name__)
