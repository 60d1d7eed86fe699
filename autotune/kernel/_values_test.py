"""Keys of values: equal if and only if the values behave alike."""

import array
import collections
import copy
import enum
import functools
import os
import struct
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from autotune import Invocation, Kernel, KernelError, stable_json
from autotune.kernel import exact_key, ordered_key
from autotune.kernel._source import source_hash
from lang_core import as_dtype

_EXAMPLES = 2000 if os.environ.get("TAPELINE_LONG") else 200


@dataclass
class Settings:
    """Static argument with fields of any type."""

    first: Any
    second: Any = None


class Scaler:
    """Owner of a method whose result depends on an attribute."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def apply(self, x: float) -> Any:
        """Returns the factor with the argument."""
        return (self.factor, x)


_FUNCTION = """
SHIFT = <shift>
def make(inside):
    def apply(x, first=<first>, *, second=<second>):
        inner = lambda: (<constant>, inside, SHIFT)
        return (math.<name>(x), first, second, inner())
    return apply
"""


def _function(name: str, first: Any, second: Any, constant: Any, inside: Any, shift: Any) -> types.FunctionType:
    """Returns a new function; all of them have one name, one module, and code of the same length."""
    source, scope = _FUNCTION, {"__name__": __name__, "math": types.ModuleType("math")}
    scope["math"].__dict__.update(sin=np.sin, cos=np.cos, tan=np.tan)
    values = {"first": first, "second": second, "constant": constant, "shift": shift}
    texts = {key: repr(value).replace("inf", "1e999").replace("nan", "(1e999 * 0)") for key, value in values.items()}
    for part, text in {"name": name, **texts}.items():
        source = source.replace(f"<{part}>", text)
    exec(source, scope)  # noqa: S102 - functions of one name that differ in one part
    return scope["make"](inside)


@functools.lru_cache(typed=True)
def _local_enum(value: Any) -> Any:
    return enum.Enum("Local", {"A": value}, module=__name__).A


def _behaviour(value: Any) -> Any:
    """Returns what a kernel could see of a value, as comparable data that confuses no two values."""
    if isinstance(value, enum.Enum):
        return "enum", _behaviour(value.value)
    if isinstance(value, float):
        return "float", "nan" if value != value else struct.pack("d", value)
    if isinstance(value, dict):
        return "dict", frozenset((_behaviour(k), _behaviour(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(_behaviour, value))
    if isinstance(value, Settings):
        return "settings", _behaviour(value.first), _behaviour(value.second)
    if callable(value):
        return "function", _behaviour(value(2.0))
    return type(value).__name__, value


_SCALARS = st.sampled_from([0, 1, -1, 2, True, False, 0.0, -0.0, 1.0, float("nan"), float("inf"), "", "1", "a", None])


def _recipes() -> st.SearchStrategy[Callable[[], Any]]:
    """Draws functions that build a value anew, so that no two values share an object."""
    scalars = _SCALARS.map(lambda value: lambda: value)
    names = st.sampled_from(["sin", "cos", "tan"])
    functions = st.builds(
        lambda *parts: lambda: _function(*parts), names, _SCALARS, _SCALARS, _SCALARS, _SCALARS, _SCALARS
    )
    methods = _SCALARS.map(lambda factor: lambda: Scaler(factor).apply)
    partials = st.builds(  # of one function, as its own defaults do not count where they are given
        lambda a, b: lambda: functools.partial(_function("sin", 0, 0, 0, 0, 0), first=a, second=b), _SCALARS, _SCALARS
    )
    enums = st.sampled_from([0, 1, 2, "a"]).map(lambda value: lambda: _local_enum(value))

    def around(inner: st.SearchStrategy[Callable[[], Any]]) -> st.SearchStrategy[Callable[[], Any]]:
        lists = st.lists(inner, max_size=2)
        return st.one_of(
            lists.map(lambda parts: lambda: [part() for part in parts]),
            lists.map(lambda parts: lambda: tuple(part() for part in parts)),
            st.builds(lambda a, b: lambda: Settings(a(), b()), inner, inner),
            st.permutations(["a", "b"]).flatmap(
                lambda keys: st.tuples(inner, inner).map(
                    lambda parts: lambda: {key: parts["ab".index(key)]() for key in keys}
                )
            ),
        )

    return st.recursive(st.one_of(scalars, functions, partials, enums), around, max_leaves=3) | methods


@hypothesis.settings(max_examples=_EXAMPLES, deadline=None)
@hypothesis.given(_recipes(), _recipes(), st.booleans())
def test_keys_are_equal_if_and_only_if_values_behave_alike(
    one: Callable[[], Any], other: Callable[[], Any], same: bool
) -> None:
    a, b = one(), (one if same else other)()
    alike = _behaviour(a) == _behaviour(b)
    assert (exact_key(a) == exact_key(b)) is alike
    if not (isinstance(a, types.MethodType) or isinstance(b, types.MethodType)):  # of an object without a description
        assert (stable_json(a) == stable_json(b)) is alike
        assert (Invocation("op", (a,)).call_key == Invocation("op", (b,)).call_key) is alike
        assert (Invocation("op", (), {"x": a}).call_key == Invocation("op", (), {"x": b}).call_key) is alike


@hypothesis.settings(max_examples=_EXAMPLES, deadline=None)
@hypothesis.given(
    st.tuples(st.sampled_from(["sin", "cos", "tan"]), *[_SCALARS] * 5),
    st.integers(0, 5),
    st.tuples(st.sampled_from(["sin", "cos", "tan"]), *[_SCALARS] * 5),
)
def test_functions_that_differ_in_one_part_have_other_keys(parts: tuple[Any, ...], place: int, others: Any) -> None:
    changed = (*parts[:place], others[place], *parts[place + 1 :])
    one, other = _function(*parts), _function(*changed)
    alike = _behaviour(one) == _behaviour(other)
    assert (stable_json(one) == stable_json(other)) is alike
    assert (exact_key(one) == exact_key(other)) is alike


def test_the_order_of_a_dict_counts_only_if_asked() -> None:
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert exact_key(one) == exact_key(other)
    assert exact_key((one,)) == exact_key((other,))
    assert ordered_key(one) != ordered_key(other)
    assert ordered_key({"x": one}) != ordered_key({"x": other})
    assert exact_key({"a": 1}) != exact_key({"a": True})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "object"])
def test_data_of_arrays_count_in_exact_keys(dtype: str) -> None:
    array = np.arange(3).astype(dtype)
    key = exact_key(Settings(array))
    assert key == exact_key(Settings(array.copy()))
    array[1] = 7
    assert key != exact_key(Settings(array))
    assert stable_json(Settings(array)) == stable_json(Settings(np.zeros(3, dtype)))
    assert exact_key(np.zeros(2)) != exact_key(np.full(2, -0.0))


def test_scalars_of_ml_dtypes_count_by_their_bits() -> None:
    values = [ml_dtypes.bfloat16(0.0), ml_dtypes.bfloat16(-0.0), ml_dtypes.float8_e4m3fn(0.0), np.float16(0.0), 0.0]
    assert len({str(exact_key(Settings(value))) for value in values}) == len(values)
    assert exact_key(Settings(ml_dtypes.bfloat16("nan"))) == exact_key(Settings(ml_dtypes.bfloat16("nan")))


def test_texts_of_numpy_are_values_and_not_arrays() -> None:
    keys = [Invocation("op", (), {"mode": mode}).call_key for mode in (np.str_("relu"), np.str_("gelu"))]
    assert keys[0] != keys[1]


def test_dtypes_of_another_byte_order_are_others() -> None:
    kinds = [np.dtype("<f4"), np.dtype(">f4"), as_dtype("f32"), np.float32, np.dtype([("a", "f4")])]
    assert len({stable_json(kind) for kind in kinds}) == len(kinds)


def test_a_changed_closure_global_or_attribute_changes_the_exact_key() -> None:
    inside = [1]
    function = _function("sin", 1, 2, 3, inside, 4)
    keys = [exact_key(function)]
    inside.append(2)
    keys.append(exact_key(function))
    function.__globals__["SHIFT"] = 5
    keys.append(exact_key(function))
    function.__kwdefaults__ = {"second": -0.0}
    keys.append(exact_key(function))
    owner = Scaler(1)
    keys.append(exact_key(owner))
    owner.factor = True
    keys.append(exact_key(owner))
    keys += [exact_key(object()), exact_key(object())]
    assert len({str(key) for key in keys[:-2]}) == len(keys) - 2
    assert keys[-1] != keys[-2]


def test_recursive_functions_and_values_have_keys() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    values: list[Any] = [1]
    values.append(values)
    assert stable_json(factorial) == stable_json(factorial)
    assert exact_key(Settings(values)) == exact_key(Settings(values))


def test_an_object_in_a_closure_is_refused_where_other_processes_read_the_key() -> None:
    with pytest.raises(KernelError, match="cannot be part of a key"):
        stable_json(_function("sin", 1, 2, 3, object(), 4))


_SCRIPT = textwrap.dedent("""
    from autotune import stable_json
    from autotune.kernel._values_test import Settings
    KNOWN = frozenset({"a", "b", "c", "d"})
    def known(x, name="a"):
        inner = lambda y: y in {"p", "q", "r", "s"} or y in KNOWN
        return inner(name)
    print(stable_json([known, Settings({"a": {1, 2.0}, "b": {"x", "y", "z"}})]))
""")


def test_keys_of_functions_are_the_same_in_every_process() -> None:
    root = str(Path(__file__).parents[2])
    texts = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
    assert '"code"' in texts.pop()


def _kernel(default: Any, attribute: Any, inside: Any) -> type[Kernel[int, Any]]:
    class Made(Kernel[int, Any]):
        op_id = "tests.made"
        block = attribute

        def run(self, x: Any, *, cfg: int, scale: Any = default) -> Any:
            return x, scale, inside

    return Made


def test_kernels_of_one_text_and_other_values_have_other_sources() -> None:
    values = [(1, 1, 1), (True, 1, 1), (1, 1.0, 1), (1, 1, -0.0), (1, 1, 0.0), (1, 1, (1,)), (1, 2, 1)]
    hashes = [source_hash(_kernel(*parts), Kernel) for parts in values]
    assert len(set(hashes)) == len(values)
    assert hashes == [source_hash(_kernel(*parts), Kernel) for parts in values]


def test_a_settings_copy_has_the_same_key() -> None:
    settings = Settings(0.0, (1, [True]))
    assert exact_key(settings) == exact_key(replace(settings))
    assert exact_key(settings) != exact_key(replace(settings, first=-0.0))


class Slots:
    """Record in slots."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Deque(collections.deque[Any]):
    """Container with attributes."""


def _named(value: Any) -> Any:
    made = Deque([1])
    made.name = value  # pyright: ignore[reportAttributeAccessIssue]
    return made


@pytest.mark.parametrize("values", [(0.0, -0.0), (1, True), (1, 1.0), (0, False)])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: collections.deque([value]),
        Slots,
        Scaler,
        lambda value: Deque([value]),
        _named,
        lambda value: types.SimpleNamespace(value=value),
        lambda value: {"key": value}.get,
        lambda value: functools.lru_cache(lambda: value),
        lambda value: Scaler(collections.deque([Slots(value)])).apply,
    ],
)
def test_objects_of_any_class_have_exact_keys_of_their_content(make: Callable[[Any], Any], values: Any) -> None:
    one, other = map(make, values)
    assert exact_key(one) == exact_key(copy.deepcopy(one))
    assert exact_key(one) != exact_key(other)


def test_objects_whose_equality_hides_a_difference_have_other_keys() -> None:
    pairs: list[tuple[Any, Any]] = [
        (array.array("d", [0.0]), array.array("d", [-0.0])),
        (Decimal("0"), Decimal("-0")),
        (Decimal("1.0"), Decimal("1.00")),
        (Fraction(1, 2), Fraction(1, 3)),
        (bytearray(b"a"), bytearray(b"b")),
        (str.upper, str.lower),
        ("a".upper, "b".upper),
    ]
    for one, other in pairs:
        assert exact_key(one) == exact_key(copy.deepcopy(one))
        assert exact_key(one) != exact_key(other)
    lock = threading.Lock()
    assert exact_key(lock) == exact_key(lock) != exact_key(threading.Lock())


def test_attributes_that_are_no_fields_count_in_exact_keys() -> None:
    one, other = Settings(1), Settings(1)
    other.third = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert exact_key(one) != exact_key(other)


def test_names_of_attributes_are_no_globals_of_a_function() -> None:
    """A field of a record that has the name of a script's variable once gave a key that changed with the variable."""
    source = """
    from dataclasses import dataclass
    from typing import NamedTuple
    from autotune import stable_json
    from autotune.kernel import exact_key
    import copy

    @dataclass(frozen=True)
    class Own:
        scale: object

    class Pair(NamedTuple):
        scale: object

    for kind in (Own, Pair):
        scale = kind((kind(1),))
        one = stable_json(scale), exact_key(scale)
        assert exact_key(scale) == exact_key(copy.deepcopy(scale))
        held, scale = scale, 3.0
        assert (stable_json(held), exact_key(held)) == one
        assert stable_json(kind(1)) != stable_json(kind(True)) != stable_json(kind(1.0))
    print("same")
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    text = textwrap.dedent(source)
    child = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout) == (0, "same\n"), child.stderr
