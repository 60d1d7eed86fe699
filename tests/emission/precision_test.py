"""Products and convolutions of f32 ask for all bits of f32; XLA's GPUs and TPUs take fewer where nobody asks."""

import re

import pytest

from tests.emission._all_cases import CASES_BY_NAME
from tests.emission._cases import Case
from tests.emission._support import graph_of, text_of

_PRODUCTS = [
    case for case in CASES_BY_NAME.values() if case.op in ("dot_general", "conv", "packed_linear", "cached_attention")
]


def _lines(case: Case) -> list[str]:
    lines = text_of([graph_of(case)]).splitlines()
    return [line for line in lines if "stablehlo.dot_general" in line or "stablehlo.convolution" in line]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i32", "i8"])
def test_the_highest_precision_where_an_operand_is_f32(dtype: str) -> None:
    lines = [line for case in _PRODUCTS if case.dtype.name == dtype for line in _lines(case)]
    assert lines
    for line in lines:
        operands = re.findall(r"tensor<[^>]*?(\w+)>", line.partition(" : (")[2].partition("->")[0])
        wanted = 2 if any(kind.endswith("f32") for kind in operands) else 0
        assert line.count("HIGHEST") == wanted, line
