from collections.abc import Callable

import pytest

from compile_dag import ComputeGraph
from compile_dag.testing import FEW, MANY, assert_linear, graph_of, recorded
from compile_hlo.passes import pruned_to_outputs, without_common_subexpressions, without_dead_code

PASSES: dict[str, Callable[[ComputeGraph], ComputeGraph]] = {
    "prune": lambda graph: pruned_to_outputs(graph, ["y"]),
    "dead code": without_dead_code,
    "common subexpressions": without_common_subexpressions,
}


@pytest.fixture(scope="module")
def graphs() -> dict[int, ComputeGraph]:
    return {count: graph_of(recorded(count)) for count in (FEW, MANY)}


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_linear(name: str, graphs: dict[int, ComputeGraph]) -> None:
    run = PASSES[name]
    assert_linear(lambda: run(graphs[FEW]), lambda: run(graphs[MANY]))
