"""Trials as graphs, and which of them slower checks run."""

from compile_dag import ComputeGraph, record
from tests.differential.strategies import Trial, Truth

Checked = tuple[Trial, Truth]


def graph_of(trial: Trial, name: str) -> ComputeGraph:
    """The trial as a graph with inputs x0, x1, ..."""
    return record(trial.call, *trial.specs, input_names=[f"x{i}" for i in range(len(trial.specs))], name=name)


def sample(trials: list[Checked], count: int) -> list[Checked]:
    """``count`` trials of as many dtypes as there are, those with empty tensors last."""
    seen: dict[object, int] = {}
    ranks: list[tuple[int, bool]] = []
    for trial, _ in trials:
        kind = trial.dtypes, tuple(x.dtype for x in trial.inputs)
        seen[kind] = seen.get(kind, 0) + 1
        ranks.append((seen[kind], not all(x.size for x in trial.inputs)))
    order = sorted(range(len(trials)), key=ranks.__getitem__)
    return [trials[i] for i in order[:count]]
