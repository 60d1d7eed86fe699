"""The compact table of parameters holds what a dict holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_hlo.emit._parameter_table import ParameterTable
from lang_core import GraphError, TensorSpec

SPECS = [TensorSpec((2,), "f32"), TensorSpec((3, 4), "bf16")]
PATHS = st.one_of(
    st.integers(0, 12).map(lambda i: f"layers.{i}.w"),
    st.integers(0, 12).map(lambda i: f"layers.{i}.experts.{i + 1}.w"),
    st.sampled_from(["norm.weight", "0.w", "layers.07.w", "layers.7", "a.1.2.b"]),
)


@given(st.lists(st.tuples(PATHS, st.sampled_from(SPECS)), max_size=60))
def test_it_holds_what_a_dict_holds(items: list[tuple[str, TensorSpec]]) -> None:
    table, expected = ParameterTable(), {}
    for path, spec in items:
        if path not in expected:
            expected[path] = spec
            table.add(path, spec)
        table.add(path, expected[path])
    assert dict(table) == expected
    assert len(table) == len(expected)
    assert len(list(table)) == len(expected)


def test_alike_layers_come_in_order_and_take_no_room() -> None:
    table, expected = ParameterTable(), []
    for index in range(1000):
        for name in ("q", "k", "v"):
            expected.append(f"model.layers.{index}.{name}.weight")
            table.add(expected[-1], SPECS[0])
    assert list(table) == expected
    assert len(table._rows) == 3
    assert all(len(numbers.bounds) == 2 for numbers in table._rows.values())


def test_an_unknown_path_is_no_key() -> None:
    table = ParameterTable()
    table.add("layers.3.w", SPECS[0])
    assert "layers.4.w" not in table
    with pytest.raises(KeyError, match=r"layers\.4\.w"):
        table["layers.4.w"]


def test_a_path_with_two_specs_is_refused() -> None:
    table = ParameterTable()
    table.add("layers.3.w", SPECS[0])
    table.add("layers.4.w", SPECS[1])
    with pytest.raises(
        GraphError, match=r"parameter 'layers\.3\.w': the model reads it as f32\[2\] and as bf16\[3,4\]"
    ):
        table.add("layers.3.w", SPECS[1])
