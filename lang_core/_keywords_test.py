"""Names that do not exist, of ops and of keyword arguments: the error has near names."""

import copy
import enum
import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lang_core import (
    EagerExecutionContext,
    InputError,
    KeywordError,
    OpError,
    Ops,
    UnknownNameError,
    checked_choices,
    near_keywords,
)
from lang_core.ops import _ALIASES

CTX = EagerExecutionContext()
X = np.ones((2, 3), np.float32)
METHODS = [name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_a_misspelt_op_gets_the_op_as_a_near_name(name: str) -> None:
    misspelt = name[:-1] if len(name) > 3 else name + "x"
    if misspelt in METHODS:
        misspelt = name + "q"
    assert not hasattr(CTX.ops, misspelt)
    assert getattr(CTX.ops, misspelt, None) is None
    with pytest.raises(UnknownNameError, match=rf"^ctx\.ops\.{misspelt}: no op of this name") as caught:
        getattr(CTX.ops, misspelt)
    assert f"{name!r}" in str(caught.value) or misspelt in _ALIASES
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, OpError)


def test_a_name_of_another_library_gets_our_op() -> None:
    for name, advice in _ALIASES.items():
        with pytest.raises(UnknownNameError, match=re.escape(f"ctx.ops.{name}: no op of this name; use {advice}")):
            getattr(CTX.ops, name)
        assert hasattr(Ops, re.split(r"\W", advice)[0]), name


def test_private_names_and_copies() -> None:
    with pytest.raises(AttributeError, match="'Ops' object has no attribute '__foo__'"):
        _ = CTX.ops.__foo__
    assert copy.copy(CTX.ops).negate(X).numpy().tolist() == (-X).tolist()


@pytest.mark.parametrize("name", METHODS)
def test_a_misspelt_keyword_of_each_op(name: str) -> None:
    """Ops of operands alone have no wrapper, which costs time: there Python's own error names the op."""
    method: Any = getattr(CTX.ops, name)
    last = [*inspect.signature(method).parameters][-1]
    with pytest.raises(TypeError, match=rf"ctx\.ops\.{name}: no argument|Ops\.{name}\(\) got an unexpected keyword"):
        method(**{f"{last}z": X})


def test_keywords_of_other_libraries() -> None:
    with pytest.raises(KeywordError) as caught:
        CTX.ops.sum(X, axis=1, keepdim=True)  # pyright: ignore[reportCallIssue]
    assert str(caught.value) == (
        "ctx.ops.sum: no argument 'keepdim'; did you mean 'keepdims'?; available: x, axis, keepdims"
    )
    assert isinstance(caught.value, InputError | OpError)
    with pytest.raises(KeywordError, match=r"softmax: no argument 'axs'; did you mean 'axis'\?"):
        CTX.ops.softmax(X, axs=-1)  # pyright: ignore[reportCallIssue]


class Side(enum.Enum):
    LEFT = "left"


@checked_choices
@dataclass(frozen=True)
class Options:
    side: Side = Side.LEFT
    size: int = 1


@near_keywords
@dataclass(frozen=True, slots=True)
class Shape:
    rows: int

    def scaled(self, factor: int = 1, *, by: int = 1) -> int:
        return self.rows * factor * by

    def failing(self, value: int) -> int:
        raise TypeError(f"of the body: {value}")


def test_functions_methods_and_dataclasses() -> None:
    with pytest.raises(KeywordError, match=r"^Options: no argument 'sizes'; did you mean 'size'"):
        Options(sizes=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"^Shape: no argument 'row'; did you mean 'rows'"):
        Shape(row=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"^Shape.scaled: no argument 'facter'; .*; available: factor, by"):
        Shape(2).scaled(facter=2)  # pyright: ignore[reportCallIssue]
    assert Shape(2).scaled(3, by=2) == 12


def test_other_type_errors_stay() -> None:
    with pytest.raises(TypeError, match=r"^of the body: 3$") as caught:
        Shape(2).failing(value=3)
    assert not isinstance(caught.value, KeywordError)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Shape(2).failing()  # pyright: ignore[reportCallIssue]


@near_keywords
def _of_many(
    *, n0: int = 0, n1: int = 0, n2: int = 0, n3: int = 0, n4: int = 0, n5: int = 0, n6: int = 0, n7: int = 0,
    n8: int = 0, n9: int = 0, n10: int = 0, n11: int = 0, temperature: int = 0,
) -> int:  # fmt: skip
    return n0 + n1 + n2 + n3 + n4 + n5 + n6 + n7 + n8 + n9 + n10 + n11 + temperature


def test_of_many_arguments_the_nearest_are_listed() -> None:
    assert _of_many(n1=2, temperature=1) == 3
    near = r"did you mean 'temperature'\?; available: temperature(, n\d+){4} \.\.\. \(13 in all\)$"
    with pytest.raises(KeywordError, match=rf"^_of_many: no argument 'temprature'; {near}"):
        _of_many(temprature=1)  # pyright: ignore[reportCallIssue]
