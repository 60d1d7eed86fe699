"""Ops that stand for several recorded ones: what a helper function does at once. No context has them."""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from compile_dag import Node
from lang_core import GraphError, Op


def _not_recorded(*_: Any) -> NoReturn:
    raise GraphError("an op that stands for a group is made of recorded ones")


def _group(name: str, summary: str, *attributes: str) -> Op:
    return Op(name, attributes=attributes, summary=summary, shape_rule=_not_recorded, eager_rule=_not_recorded)


RMS_NORM_QUANTIZE: Final = _group(
    "rms_norm_quantize", "block_quantize of rms_norm; where centred with 1 + weight, rounded once.", "eps", "centred"
)
SILU_QUANTIZE: Final = _group("silu_quantize", "block_quantize of silu(x) * y.")
CACHED_ATTENTION_QUANTIZE: Final = _group(
    "cached_attention_quantize", "block_quantize of cached_attention of one query, heads in a row.", "scale"
)
GROUPS: Final = (RMS_NORM_QUANTIZE, CACHED_ATTENTION_QUANTIZE, SILU_QUANTIZE)


class Group(Node):
    """A node that stands for several.

    Attributes:
        paths: of the modules whose ops it stands for.
    """

    __slots__ = ("paths",)

    def __init__(self, op: Op, inputs: Sequence[Any], attributes: tuple[Any, ...], nodes: Sequence[Node]) -> None:
        last = nodes[-1]
        super().__init__(op, tuple(inputs), attributes, last.results, last.stretch)
        self.paths: Final = tuple(dict.fromkeys(node.path for node in nodes))
