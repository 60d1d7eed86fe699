"""The op of a graph that stands for a weight."""

from typing import Final, NoReturn

from lang_core import GraphError, Op, TensorSpec


def _no_data(path: str, spec: TensorSpec) -> NoReturn:
    raise GraphError(f"parameter {path!r} ({spec!r}) has no data of its own: evaluate the graph with a context")


PARAMETER: Final = Op(
    "parameter",
    attributes=("path", "spec"),
    summary="A weight, named by its module path.",
    shape_rule=lambda path, spec: (spec,),
    eager_rule=_no_data,
)
