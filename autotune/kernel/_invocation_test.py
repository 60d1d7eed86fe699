import functools
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from autotune import (
    Environment,
    Invocation,
    Kernel,
    KernelError,
    abstractify,
    compile_environment,
    device_fingerprint,
    get_device_platform,
    powers_of_two,
    short_hash,
    stable_json,
)
from autotune._kernels_testing import Matmul
from autotune.kernel._invocation import _KEYS
from autotune.kernel._specs import ArraySpec
from lang_core import EagerExecutionContext, Tensor, TensorSpec, f32


class Mode(Enum):
    A = 1
    B = 2


@dataclass(frozen=True)
class Options:
    size: int
    mode: Mode = Mode.A


def _key(*args: Any, **kwargs: Any) -> str:
    return Invocation("op", args, kwargs).call_key


_X = np.ones((2, 3), np.float32)

# Each of these is another call than all others.
_DIFFERENT: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((_X,), {}),
    ((_X.T,), {}),
    ((_X[0],), {}),
    ((_X.astype(np.float64),), {}),
    ((_X.astype(ml_dtypes.bfloat16),), {}),
    ((_X, _X), {}),
    (((_X, _X),), {}),
    (([_X, _X],), {}),
    (({"a": _X},), {}),
    (({"b": _X},), {}),
    ((), {"a": _X}),
    ((_X, 1), {}),
    ((_X, True), {}),
    ((_X, 1.0), {}),
    ((_X, 2), {}),
    ((_X, "1"), {}),
    ((_X, None), {}),
    ((_X, 0.0), {}),
    ((_X, -0.0), {}),
    ((_X, (1, 2)), {}),
    ((_X, (2, 1)), {}),
    ((_X, [1, 2]), {}),
    ((_X,), {"scale": 0.5}),
    ((_X,), {"scale": 0.25}),
    ((_X,), {"mode": Mode.A}),
    ((_X,), {"mode": Mode.B}),
    ((_X,), {"options": Options(1)}),
    ((_X,), {"options": Options(1, Mode.B)}),
    ((_X,), {"options": Options(2)}),
    ((_X,), {"dtype": np.dtype("float32")}),
    ((_X,), {"dtype": np.dtype("float16")}),
    ((_X,), {"fn": np.float32}),
    ((_X,), {"fn": abstractify}),
    ((_X,), {"fn": short_hash}),
    ((_X,), {"fn": functools.partial(short_hash, 1)}),
    ((_X,), {"fn": functools.partial(short_hash, 2)}),
]


def test_other_calls_have_other_keys_and_equal_ones_the_same() -> None:
    keys: list[str] = []
    for again in range(2):
        if again:
            _KEYS.clear()
        keys = [_key(*args, **kwargs) for args, kwargs in _DIFFERENT]
        assert len(set(keys)) == len(keys)
        assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)
    assert keys == [_key(*args, **kwargs) for args, kwargs in _DIFFERENT]


def test_data_and_the_kind_of_array_do_not_count() -> None:
    ctx = EagerExecutionContext()
    alike = [_X, _X * 7, ctx.constant(_X), ArraySpec((2, 3), "float32"), TensorSpec((2, 3), "f32")]
    assert len({_key(value) for value in alike}) == 1
    assert _key(ctx.constant(_X), dtype=f32) == _key(_X, dtype=f32)


def test_the_context_does_not_count_and_order_of_keywords_neither() -> None:
    assert _key(_X, ctx=EagerExecutionContext()) == _key(_X)
    assert _key(_X, a=1, b=2) == _key(_X, b=2, a=1)


class _Left(IntEnum):
    A = 1


class _Right(IntEnum):
    A = 1


def test_members_that_are_equal_numbers_are_not_equal_arguments() -> None:
    for _ in range(2):
        assert len({_key(_X, way=way) for way in (_Left.A, _Right.A, 1, True)}) == 4


def test_a_call_runs_where_its_first_array_says_at_any_depth() -> None:
    class Recording(EagerExecutionContext):
        @property
        def isRecording(self) -> bool:
            return True

    recorded = Tensor()
    recorded.spec = TensorSpec((2, 3), "f32")
    for args in ((recorded,), (_X, [_X, {"a": (recorded,)}]), (_X, Recording())):
        assert device_fingerprint(*args).startswith("recorded|cpu|")
    assert device_fingerprint(_X, [_X], EagerExecutionContext()).startswith("numpy|cpu|")


def test_axes_method_and_mesh_count() -> None:
    calls: list[dict[str, Any]] = [
        {},
        {"batch_axes": {"x": 0}},
        {"batch_axes": {"x": 1}},
        {"method": "shard_map"},
        {"mesh": "2x2"},
        {"mesh": "4"},
    ]
    assert len({Invocation("op", (_X,), **call).call_key for call in calls}) == len(calls)


def test_buckets_round_what_is_near() -> None:
    keys = [Invocation("op", (np.ones(n),), bucket=powers_of_two).call_key for n in (100, 128, 129, 16, 15)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert Invocation("op", (np.ones(100),)).call_key != keys[0]


def test_an_argument_that_no_other_process_understands_is_refused() -> None:
    with pytest.raises(KernelError, match=r"<object object at .*> of type builtins.object cannot be part of a key"):
        _key(_X, thing=object())
    y = object()
    with pytest.raises(KernelError, match="cannot be part of a key"):
        _key(_X, fn=lambda x: x + y)


_TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.text(), inner, max_size=2)
    ),
    max_leaves=6,
)


@hypothesis.given(_TREES)
@hypothesis.settings(max_examples=150, deadline=None)
def test_the_quick_way_and_the_long_way_agree(tree: Any) -> None:
    inv = Invocation("op", (_X, tree))
    assert inv.call_key == inv._long_key(None) == inv.call_key


def test_keys_are_those_of_another_process() -> None:
    program = (
        "import numpy as np; from autotune import Invocation, Kernel, device_fingerprint\n"
        "from autotune._kernels_testing import Matmul\n"
        "print(Invocation('op', (np.ones((2, 3), np.float32),), {'scale': 0.5}).call_key, Matmul().source)\n"
        "print(device_fingerprint())"
    )
    root = str(Path(__file__).parents[2])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([root, *sys.path])},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    first, device = outputs.pop().splitlines()
    assert first.split() == [_key(_X, scale=0.5), Matmul().source]
    assert device.startswith("numpy|cpu|")


def test_the_device_part_has_device_versions_and_flags() -> None:
    base = Environment("iree", "cpu", "host", "EPYC, 2 threads", ("iree 3.13",), ("--O2",))
    others = [
        Environment("iree", "cpu", "host", "EPYC, 4 threads", ("iree 3.13",), ("--O2",)),
        Environment("iree", "cpu", "host", "EPYC, 2 threads", ("iree 3.14",), ("--O2",)),
        Environment("iree", "cpu", "host", "EPYC, 2 threads", ("iree 3.13",), ("--O3",)),
        Environment("iree", "cpu", "host", "EPYC, 2 threads", ("iree 3.13",), ("--O2",), "4"),
        Environment("jax", "cpu", "host", "EPYC, 2 threads", ("iree 3.13",), ("--O2",)),
    ]
    assert len({value.fingerprint for value in [base, *others]}) == 6
    assert base.fingerprint.startswith("iree|cpu|host|")
    assert get_device_platform() == "cpu"
    with compile_environment(base):
        assert device_fingerprint(_X) == base.fingerprint
    assert device_fingerprint(_X) == device_fingerprint()


def test_stable_json_orders_what_has_no_order() -> None:
    assert stable_json({"b": {2, 1}, "a": 1}) == stable_json({"a": 1, "b": {1, 2}})


def _factor() -> int:
    return 2


def _kernel(source: str) -> type[Kernel[Any, Any]]:
    module = type(sys)(f"made_{len(sys.modules)}")
    sys.modules[module.__name__] = module
    exec(source, vars(module))  # noqa: S102 - two kernels that differ in one word of their source
    return module.K


_SOURCE = """
from autotune import Kernel
FACTOR = {factor}
def helper(x):
    return x * FACTOR
class Base(Kernel):
    def inherited(self):
        return {inherited}
class K(Base):
    op_id = "made"
    def run(self, x, *, cfg):
        return helper(x){more}
"""


def test_the_source_counts_with_bases_helpers_and_constants() -> None:
    def made(**changes: Any) -> str:
        return _kernel(_SOURCE.format(**{"factor": 1, "inherited": 1, "more": ""} | changes))().source

    assert made() == made()
    assert len({made(), made(factor=2), made(inherited=2), made(more=" + 1")}) == 4
