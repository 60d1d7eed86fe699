import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from lang_core import ChoiceError, ConfigError, checked_choices, choice, flag


class Layout(enum.Enum):
    SPLIT_HALF = "split_half"
    BY_PAIRS = "interleaved"


@checked_choices
@dataclass(frozen=True, slots=True)
class Config:
    size: int
    layout: Layout = Layout.SPLIT_HALF
    transposed: bool = False
    kinds: tuple[Layout, ...] = ()
    named: Mapping[str, Layout] | None = None
    direction: Literal["IN", "OUT"] = "IN"


@pytest.mark.parametrize("value", [Layout.BY_PAIRS, "interleaved", "BY_PAIRS"])
def test_what_can_mean_one_member_only_is_that_member(value: Any) -> None:
    assert choice(Layout, value, "layout") is Layout.BY_PAIRS
    assert Config(3, value).layout is Layout.BY_PAIRS
    assert Config(3, layout=value).layout is Layout.BY_PAIRS
    text: Any = "split_half"
    assert Config(3, kinds=(value, text)).kinds == (Layout.BY_PAIRS, Layout.SPLIT_HALF)
    assert Config(3, named={"a": value}).named == {"a": Layout.BY_PAIRS}


@pytest.mark.parametrize("value", ["split", "split-half", "", None, 0, True, np.ones(2), Layout])
def test_the_rest_is_refused_with_the_choices_named(value: Any) -> None:
    with pytest.raises(ChoiceError, match=r"Config: layout: expected one of split_half, interleaved; found "):
        Config(3, layout=value)
    with pytest.raises(ChoiceError, match=r"^the layout: expected one of split_half, interleaved; found "):
        choice(Layout, value, "the layout")


def test_near_names_are_told() -> None:
    with pytest.raises(ConfigError, match=r"found 'splithalf'; did you mean 'split_half'\?"):
        Config(3, "splithalf")  # pyright: ignore[reportArgumentType]


def test_flags_are_bools() -> None:
    for value in (True, False, np.True_, np.False_):
        assert flag(value, "transpose") is bool(value)
        assert Config(3, transposed=value).transposed is bool(value)  # pyright: ignore[reportArgumentType]
    for wrong in ("yes", "False", 1, 0, None, np.ones(1, bool), 1.0):
        with pytest.raises(ChoiceError, match="Config: transposed: expected true or false; found "):
            Config(3, transposed=wrong)  # pyright: ignore[reportArgumentType]


def test_named_choices_and_collections() -> None:
    assert Config(3, direction="OUT").direction == "OUT"
    with pytest.raises(ChoiceError, match="Config: direction: expected one of IN, OUT; found 'INOUT'"):
        Config(3, direction="INOUT")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ChoiceError, match=r"kinds: expected one of a tuple of split_half, inter.*; found \('x',\)"):
        Config(3, kinds=("x",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ChoiceError, match=r"named: expected one of a Mapping of .*, None; found \{'a': 'x'\}"):
        Config(3, named={"a": "x"})  # pyright: ignore[reportArgumentType]


def test_what_is_right_stays_the_same_object() -> None:
    kinds = (Layout.BY_PAIRS,)
    assert Config(3, kinds=kinds).kinds is kinds
    assert Config(3, kinds=["interleaved"]).kinds == kinds  # pyright: ignore[reportArgumentType]


def test_functions_methods_and_named_tuples() -> None:
    @checked_choices
    class Pair(NamedTuple):
        first: bool
        second: int = 3

    class Thing:
        @classmethod
        @checked_choices
        def made(cls, *layouts: Layout, last: Layout | float = 1.0) -> Sequence[Any]:
            return (*layouts, last)

    assert Pair(True) == (True, 3)
    assert Pair(np.True_) == (True, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ChoiceError, match="Pair: first"):
        Pair(second=4, first="yes")  # pyright: ignore[reportArgumentType]
    made: Any = Thing.made
    assert made("split_half", last=2) == (Layout.SPLIT_HALF, 2)
    assert made(last="interleaved") == (Layout.BY_PAIRS,)
    with pytest.raises(ChoiceError, match=r"Thing.made: layouts: expected .*; found 'x'"):
        made("split_half", "x")
    with pytest.raises(ChoiceError, match=r"Thing.made: last: expected one of split_half, interleaved, a float;"):
        made(last="x")


def test_a_bool_beside_numbers_is_a_number() -> None:
    @checked_choices
    def scaled(x: bool | int | float, side: Layout = Layout.SPLIT_HALF) -> Any:
        return x

    assert scaled(0.5) == 0.5
    assert scaled("anything") == "anything"  # pyright: ignore[reportArgumentType]
