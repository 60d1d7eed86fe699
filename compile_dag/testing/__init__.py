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
