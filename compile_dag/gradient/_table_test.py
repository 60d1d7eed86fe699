"""Gradient rules are of ops; tests/adding checks that no op lacks a rule, or a reason why it has none."""

import pytest

from compile_dag.gradient import COMPOSITE_RULES, NOT_DIFFERENTIABLE, RULES, composite_gradient, gradient_of
from lang_core import OPS, GraphError


def test_rules_and_reasons_are_of_ops() -> None:
    assert set(RULES) | set(NOT_DIFFERENTIABLE) <= set(OPS)
    assert not set(RULES) & set(NOT_DIFFERENTIABLE)
    assert all(NOT_DIFFERENTIABLE.values())


def test_what_is_registered_twice_is_refused() -> None:
    with pytest.raises(GraphError, match="the op 'mul' has a gradient rule already: register one for each"):
        gradient_of("mul")(RULES["add"])
    with pytest.raises(GraphError, match="the composite 'softmax' has a gradient rule already"):
        composite_gradient("softmax")(COMPOSITE_RULES["softmax"])
