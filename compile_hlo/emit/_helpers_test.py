"""Records of helper functions: what a head says is what was recorded, to the last bit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_hlo.directions import Attribute
from compile_hlo.emit import (
    Helper,
    _helpers,
    helper_head,
    helper_kinds,
    helper_record,
    is_helper,
    read_helper,
    register_helper,
)
from compile_hlo.emit._helpers import HelperFunctions
from lang_core import DTYPES, ConfigError, GraphError, TensorSpec

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


def test_a_registered_kind_is_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_helpers, "_ordered_sums", dict(_helpers._ordered_sums))
    spec, functions = TensorSpec((4,), "f32"), HelperFunctions()
    function = helper_record(Helper("acme_clip", "f32.4"), [spec], [spec])
    assert not is_helper("acme_clip.f32.4")
    with pytest.raises(
        GraphError, match=r"helper function 'acme_clip\.f32\.4': kind 'acme_clip' not found; available: bl"
    ):
        functions.add(function, "")
    register_helper("acme_clip")
    register_helper("acme_sum", ordered_sums=True)
    functions.add(function, "")
    assert is_helper("acme_clip.f32.4")
    assert helper_kinds()[-2:] == ("acme_clip", "acme_sum")
    functions.batch_invariant = True
    assert functions.of_caller(Helper("acme_clip", "a")) == Helper("acme_clip", "a")
    assert functions.of_caller(Helper("acme_sum", "a")).attributes == {"batch_invariant": True}


@pytest.mark.parametrize("kind", ["", "acme.clip", "Acme", "acme clip"])
def test_a_malformed_kind_is_refused(kind: str) -> None:
    with pytest.raises(
        ConfigError, match="the kind begins with a lower-case letter, and has these, digits and '_' alone"
    ):
        register_helper(kind)


def test_a_kind_that_is_taken_is_refused() -> None:
    with pytest.raises(ConfigError, match="helper function 'linear' is registered already: a kind stands for one"):
        register_helper("linear")
