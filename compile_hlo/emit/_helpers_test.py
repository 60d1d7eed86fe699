"""Records of helper functions: what a head says is what was recorded, to the last bit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_hlo.directions import Attribute
from compile_hlo.emit import Helper, helper_head, helper_record, read_helper
from lang_core import DTYPES, TensorSpec

_SPECS = st.builds(
    TensorSpec, st.lists(st.integers(0, 4096), max_size=5).map(tuple), st.sampled_from([dtype.name for dtype in DTYPES])
)
_VALUES = st.booleans() | st.text(max_size=20) | st.floats(allow_nan=False)
_ATTRIBUTES = st.dictionaries(st.sampled_from(["encoding", "eps", "scale", "centred"]), _VALUES)


@given(attributes=_ATTRIBUTES, arguments=st.lists(_SPECS, max_size=4), results=st.lists(_SPECS, min_size=1, max_size=3))
def test_a_head_is_read_as_the_record_that_it_was_written_from(
    attributes: dict[str, Attribute], arguments: list[TensorSpec], results: list[TensorSpec]
) -> None:
    function = helper_record(Helper("packed_linear", "any", attributes), arguments, results)
    assert read_helper(helper_head(function)) == function
    assert read_helper(helper_head(function, described=False)) is None


@pytest.mark.parametrize("scale", [1 / math.sqrt(80), 2.0**-1074, math.inf])
def test_numbers_are_exact(scale: float) -> None:
    spec = TensorSpec((2, 32), "bf16")
    read = read_helper(helper_head(helper_record(Helper("cached_attention", "any", {"scale": scale}), [spec], [spec])))
    assert read is not None
    assert read.attributes["scale"] == scale
    assert [argument.effective for argument in read.arguments] == ["IN"]
