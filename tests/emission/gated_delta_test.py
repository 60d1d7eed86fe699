"""The gated delta rule and the causal convolution, lowered."""

from typing import Any

import numpy as np
import pytest

from lang_core import f32
from tests.emission._cases import Array, Case
from tests.emission._gated_delta_cases import CASES
from tests.emission._support import assert_agrees, eager_results, graph_of, interpret, text_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_interpreter_agrees(case: Case):
    assert_agrees(interpret(graph_of(case), case.inputs), eager_results(case), case)


def test_the_text_does_not_grow_with_the_sequence():
    def lines(tokens: int) -> int:
        x, gate = np.zeros((1, tokens, 2, 4), np.float32), np.zeros((1, tokens, 2), np.float32)
        inputs: tuple[Array, ...] = (x, x, x, gate, gate)

        def rule(ctx: Any, *operands: Any) -> Any:
            return ctx.ops.gated_delta_rule(*operands)

        return text_of([graph_of(Case("gated_delta_rule", "f", f32, rule, inputs))]).count("\n")

    assert lines(64) == lines(3200)
    assert lines(1) < 50
