"""Ops that only graphs have: a weight, and a name of a tensor for dumps."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NoReturn

from compile_dag._graph import ComputeGraph, regions_of
from compile_dag._node import Node
from lang_core import GraphError, Op, TensorSpec, tag_name


def _no_data(path: str, spec: TensorSpec) -> NoReturn:
    raise GraphError(f"parameter {path!r} ({spec!r}) has no data of its own: evaluate the graph with a context")


PARAMETER: Final = Op(
    "parameter",
    attributes=("path", "spec"),
    summary="A weight, named by its module path.",
    shape_rule=lambda path, spec: (spec,),
    eager_rule=_no_data,
)
"""Op of a graph that stands for a parameter."""

# Recorded only if a recording selects the tag. Its result is the operand once more, and used by nobody: whatever
# needs the tensor does not depend on the tag.
TAG: Final = Op(
    "tag",
    attributes=("name",),
    summary="Names a tensor below the module's path.",
    shape_rule=lambda x, name: (x,),
    eager_rule=lambda x, name: x,
)
"""Op of a graph that names a tensor for a dump."""


@dataclass(frozen=True, slots=True)
class TagInfo:
    """Description of a tagged tensor.

    Attributes:
        name: full name.
        spec: shape and dtype.
        module_path: path of the module that tags it.
        op: name of the op that made it.
        line: Python source line of that op's call, ``package/file.py:line``; for an input, of the tag.
    """

    name: str
    spec: TensorSpec
    module_path: str
    op: str
    line: str


def tag_info(node: Node) -> TagInfo:
    """Returns the description in a tag's node."""
    (x,) = node.inputs
    line = node.line if x.op_name == "placeholder" else x.line
    return TagInfo(tag_name(node.path, node.attributes[0]), x.spec, node.path, x.op_name, line_in_package(line))


def line_in_package(line: str) -> str:
    """Returns the line without the folder that its package was imported from, which differs from machine to machine.

    That is the shortest of the search path, for the folder of a program lies in it, too. Bazel adds the folder of all
    repositories, ``program.runfiles``; a module imported through it lies in one of them.
    """
    file = PurePath(line)
    folders = [PurePath(folder) for folder in sys.path if folder and file.is_relative_to(folder)]
    folders = [
        folder / file.relative_to(folder).parts[0] if folder.suffix == ".runfiles" else folder for folder in folders
    ]
    return file.relative_to(min(folders, key=lambda folder: len(folder.parts))).as_posix() if folders else file.name


def has_tags(node: Node) -> bool:
    """Returns whether a node is a tag, or has one in its regions: such a node is kept because it is observed."""
    if node.op is TAG:
        return True
    for attribute in node.attributes:
        if isinstance(attribute, ComputeGraph) and any(map(has_tags, attribute.nodes)):
            return True
    return False


def tags_of(nodes: Iterable[Node]) -> Iterator[TagInfo]:
    """Yields the tags among nodes and in their regions, in order."""
    for node in nodes:
        if node.op is TAG:
            yield tag_info(node)
        for region in regions_of(node):
            yield from tags_of(region.nodes)
