"""The eager context and jax give the same for every op and composite."""

import inspect

import pytest

from lang_core import OPS, EagerExecutionContext
from tests.differential.strategies import STRATEGIES, difference, drawn, eagerly, truths

_COUNT = 40
_LEAVES = {"parameter"}
# The method of ctx.ops that is not called as its op is.
_METHODS = {"while": "while_loop"}


def _methods() -> set[str]:
    of_ops = inspect.getmembers(type(EagerExecutionContext().ops), inspect.isfunction)
    return {name for name, _ in of_ops if not name.startswith("_")}


def test_every_op_and_every_composite_has_a_strategy():
    wanted = set(OPS) - _LEAVES | _methods() - set(_METHODS.values())
    assert set(STRATEGIES) == wanted


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_eager_agrees_with_jax(name: str):
    trials = drawn(name, _COUNT)
    assert len(trials) > _COUNT // 4
    wrong = [
        wrong
        for trial, truth in zip(trials, truths(trials), strict=True)
        if (wrong := difference(trial, truth, eagerly(trial)))
    ]
    assert not wrong, f"{len(wrong)} of {len(trials)}; the first: {min(wrong, key=len)}"
