"""Support for tests of graphs, here and in packages above: random programs, and a measure of linear work."""

from compile_dag.testing._programs import (
    DRAWN,
    INPUTS,
    PROGRAMS,
    Program,
    eager,
    input_tensors,
    same,
)
from compile_dag.testing._work import FEW, MANY, X, assert_linear, graph_of, recorded

__all__ = [
    "DRAWN",
    "FEW",
    "INPUTS",
    "MANY",
    "PROGRAMS",
    "Program",
    "X",
    "assert_linear",
    "eager",
    "graph_of",
    "input_tensors",
    "recorded",
    "same",
]
