"""Compiled kernels: what they take after the example, and what they refuse, for every compiler."""

import collections
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    CompileRequest,
    ConfigSelectorChain,
    Environment,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    get_invocations,
    host_environment,
    map_arrays,
)


class Python:
    """Compiler that runs the kernel in Python, and counts what it compiles."""

    name = "python"

    def __init__(self) -> None:
        self.requests: list[CompileRequest] = []

    def environment(self, arrays: Any = ()) -> Environment:
        """Returns that of this process."""
        return host_environment()

    def compile(self, request: CompileRequest) -> Callable[..., Any]:
        """Returns the kernel's own method, with NumPy's arrays as results."""
        self.requests.append(request)
        return lambda *arrays: map_arrays(np.asarray, request.run(*arrays))


class BlockedLinear(Kernel[int, Any]):
    """x [m, k] @ weight [n, k].T in blocks of outputs, of which there are as many as fit the example."""

    op_id = "tests.blocked_linear"

    def run(self, x: Any, weight: Any, *, cfg: int, ctx: Any) -> Any:
        size = weight.shape[0] // cfg
        parts = [ctx.ops.slice_axis(weight, 0, i * size, (i + 1) * size) for i in range(cfg)]
        return ctx.ops.concat([ctx.ops.linear(x, part) for part in parts], -1)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        rows = inv.args[1].shape[0]
        return next(cfg for cfg in (4, 3, 2, 1) if rows % cfg == 0)


def _heuristics() -> Executor:
    return Executor(ConfigSelectorChain(policy="heuristics"))


def _compilers() -> list[Any]:
    return ["iree", "jax", Python()]


@pytest.mark.parametrize("compiler", _compilers(), ids=["iree", "jax", "python"])
def test_another_shape_gets_a_configuration_of_its_own(compiler: Any) -> None:
    random = np.random.default_rng(0)
    x, eight, six, seven = (random.standard_normal((n, 3)).astype(np.float32) for n in (2, 8, 6, 7))
    f = _heuristics().compile(BlockedLinear(), x, eight, compiler=compiler)
    for weight in (eight, six, seven, six, eight):
        np.testing.assert_allclose(f(x, weight), x @ weight.T, rtol=1e-5)
    assert [cfg for (_, weight), cfg in sorted(f.configurations().items(), key=str) if weight.shape[0] > 0] == [3, 1, 4]


class InJax(Kernel[int, Any]):
    """The same, written in JAX."""

    op_id = "tests.blocked_linear_in_jax"
    heuristic_cfg = BlockedLinear.heuristic_cfg

    def run(self, x: Any, weight: Any, *, cfg: int) -> Any:
        size = weight.shape[0] // cfg
        return jnp.concatenate([x @ weight[i * size : (i + 1) * size].T for i in range(cfg)], -1)


@pytest.mark.parametrize(
    ("kernel", "compiler"),
    [(BlockedLinear(), "iree"), (BlockedLinear(), "jax"), (BlockedLinear(), Python()), (InJax(), "jax")],
    ids=["iree", "jax", "python", "written in jax"],
)
def test_a_given_configuration_serves_other_shapes_that_it_fits_alone(kernel: Any, compiler: Any) -> None:
    random = np.random.default_rng(0)
    x, *weights = (random.standard_normal((n, 3)).astype(np.float32) for n in (2, 8, 12, 6, 7))
    f = _heuristics().compile(kernel, x, weights[0], compiler=compiler, cfg=4)
    for weight in weights:
        np.testing.assert_allclose(f(x, weight), x @ weight.T, rtol=1e-5)
    chosen = {specs[1].shape[0]: cfg for specs, cfg in f.configurations().items()}
    assert chosen == {8: 4, 12: 4, 6: 3, 7: 1}


def test_a_given_configuration_of_a_kernel_without_heuristics_serves_all() -> None:
    class Without(BlockedLinear):
        op_id = "tests.without_heuristics"
        heuristic_cfg = Kernel.heuristic_cfg

    x, weight = np.ones((2, 3), np.float32), np.ones((6, 3), np.float32)
    f = _heuristics().compile(Without(), x, weight[:4], compiler="jax", cfg=2)
    np.testing.assert_array_equal(f(x, weight), x @ weight.T)


def test_another_shape_that_jax_traces_gets_its_configuration_too() -> None:
    random = np.random.default_rng(0)
    x, eight, six = (jnp.asarray(random.standard_normal((n, 3)), jnp.float32) for n in (2, 8, 6))
    f = _heuristics().compile(BlockedLinear(), x, eight, compiler="jax")
    np.testing.assert_allclose(jax.jit(f)(x, six), x @ six.T, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(f, (0, None))(x[:, None], six)[:, 0], x @ six.T, rtol=1e-5)
    slopes = jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), argnums=(0, 1))(x, six)
    wanted = jax.grad(lambda x, w: jnp.sum((x @ w.T) ** 2), argnums=(0, 1))(x, six)
    for ours, theirs in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@dataclass
class Settings:
    """Static argument whose fields a caller may change."""

    scale: Any = 1.0
    shift: Any = 0
    table: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(2, np.float32))


class Told(Kernel[int, Any]):
    """x / scale + shift, and what was told of static values, as arrays."""

    op_id = "tests.told"

    def run(self, x: Any, *, cfg: int, ctx: Any, options: Any = None, scale: Any = 1.0, function: Any = None) -> Any:
        ops = ctx.ops
        kinds = {bool: 1.0, int: 2.0, float: 3.0, str: 4.0, type(None): 5.0}
        seen = [kinds.get(type(scale), 6.0)]
        if isinstance(scale, int | float):
            seen.append(float(np.copysign(1.0, scale)))
        if options is not None:
            seen += [float(options.scale), float(options.shift), *map(float, options.table)]
        if function is not None:
            seen.append(float(function()))
        return ops.add(ops.mul(x, 0.0), ops.constant(np.asarray(seen, np.float32)[:, None]))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


_X = np.ones((1, 1), np.float32)
_STATICS = [0.0, -0.0, 0, False, 1, 1.0, True, -1, float("nan"), "1", None]


@pytest.mark.parametrize("compiler", ["jax", Python()], ids=["jax", "python"])
@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(st.sampled_from(_STATICS), st.sampled_from(_STATICS))
def test_static_values_that_are_told_apart_are_not_taken_for_each_other(compiler: Any, one: Any, other: Any) -> None:
    executor = _heuristics()
    f = executor.compile(Told(), _X, scale=one, compiler=compiler)
    same = type(one) is type(other) and repr(one) == repr(other)
    np.testing.assert_array_equal(f(_X, scale=one), executor(Told(), _X, scale=one))
    if same:
        np.testing.assert_array_equal(f(_X, scale=other), executor(Told(), _X, scale=other))
    else:
        with pytest.raises(KernelError, match=r"the compiled tests.told@v0 was made for .*: compile it for these"):
            f(_X, scale=other)


@pytest.mark.parametrize("compiler", _compilers(), ids=["iree", "jax", "python"])
@pytest.mark.parametrize("called_before", [False, True])
def test_a_static_record_or_array_that_changes_is_noticed(compiler: Any, called_before: bool) -> None:
    executor, options = _heuristics(), Settings(2.0, 1)
    f = executor.compile(Told(), _X, options=options, compiler=compiler)
    before = executor(Told(), _X, options=options)
    if called_before:
        np.testing.assert_array_equal(f(_X, options=options), before)
    for change in ({"scale": 3.0}, {"shift": True}, {"table": np.ones(2, np.float32)}):
        changed = Settings(2.0, 1)
        for name, value in change.items():
            setattr(changed, name, value)
        with pytest.raises(KernelError, match="compile it for these"):
            f(_X, options=changed)
    options.scale = 3.0
    with pytest.raises(KernelError, match="compile it for these"):
        f(_X, options=options)
    np.testing.assert_array_equal(f(_X, options=Settings(2.0, 1)), before)  # the value it was compiled for
    options.scale = 2.0
    np.testing.assert_array_equal(f(_X, options=options), before)
    options.table[1] = -0.0
    with pytest.raises(KernelError, match="compile it for these"):
        f(_X, options=options)


@pytest.mark.parametrize("compiler", ["jax", Python()], ids=["jax", "python"])
def test_a_function_whose_closure_changes_is_noticed(compiler: Any) -> None:
    inside = [1.0]

    def function() -> float:
        return inside[0]

    f = _heuristics().compile(Told(), _X, function=function, compiler=compiler)
    inside[0] = 2.0
    with pytest.raises(KernelError, match="compile it for these"):
        f(_X, function=function)
    g = _heuristics().compile(Told(), _X, function=function, compiler=compiler)
    assert g(_X, function=function)[-1] == 2.0


class Difference(Kernel[int, Any]):
    """x - y."""

    op_id = "tests.difference"

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.sub(x, y)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


class Listed(Kernel[int, Any]):
    """The values of a mapping one after the other, in the mapping's own order."""

    op_id = "tests.listed"

    def run(self, parts: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.concat(list(parts.values()), 0)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


@pytest.mark.parametrize("compiler", _compilers(), ids=["iree", "jax", "python"])
def test_arrays_are_found_by_name_and_not_by_the_order_of_names(compiler: Any) -> None:
    executor, (one, two) = _heuristics(), (np.full(2, value, np.float32) for value in (1, 2))
    f = executor.compile(Difference(), x=one, y=two, compiler=compiler)
    np.testing.assert_array_equal(f(x=one, y=two), one - two)
    np.testing.assert_array_equal(f(y=two, x=one), one - two)
    g = executor.compile(Listed(), {"a": one, "b": two}, compiler=compiler)
    for names in itertools.permutations(("a", "b")):
        parts = {name: {"a": one, "b": two}[name] for name in names}
        np.testing.assert_array_equal(g(parts), executor(Listed(), parts))


class Held(Kernel[int, Any]):
    """x times an attribute; it counts its runs."""

    op_id = "tests.held"

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.count = factor, 0

    def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
        self.count += 1
        return ctx.ops.mul(x, self.factor)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


@pytest.mark.parametrize("compiler", ["jax", Python()], ids=["jax", "python"])
def test_an_attribute_of_the_kernel_that_changes_is_noticed(compiler: Any) -> None:
    kernel = Held(2.0)
    f = _heuristics().compile(kernel, _X, compiler=compiler)
    assert [f(_X).item(), f(_X).item()] == [2.0, 2.0]
    kernel.factor = 3.0
    with pytest.raises(KernelError, match=r"attributes of the compiled tests.held@v0 have changed .* compile it again"):
        f(_X)


class Several(Kernel[int, Any]):
    """x times values of the kernel's own, in containers and in its class; it lists its runs."""

    op_id = "tests.several"
    shift = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.factors, self.table, self.parts, self.queue = [2.0], {"a": 3.0}, {5.0}, collections.deque([7.0])
        self.more = types.SimpleNamespace(factor=11.0)
        self.runs: list[Any] = []
        self.shapes: dict[Any, Any] = {}
        self.nested: Any = collections.defaultdict(lambda: {"a": []})

    def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
        self.runs.append(x.shape)
        self.shapes[len(self.runs)] = x.shape
        self.nested[len(self.factors)]["a"].append(1)
        self.nested[1]["b"] = [None] * len(self.runs)
        values = [*self.factors, *self.table.values(), *self.parts, *self.queue, self.more.factor]
        return ctx.ops.add(ctx.ops.mul(x, float(np.prod(values))), self.shift)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


_CHANGES: list[Callable[[Any], None]] = [
    lambda kernel: kernel.factors.append(2.0),
    lambda kernel: kernel.factors.__setitem__(0, -2.0),
    lambda kernel: kernel.table.update(a=1.0),
    lambda kernel: kernel.parts.add(4.0),
    lambda kernel: kernel.queue.append(4.0),
    lambda kernel: setattr(kernel.more, "factor", 1.0),
    lambda kernel: setattr(kernel, "shift", 2.0),
    lambda kernel: setattr(type(kernel), "shift", 2.0),
]


@pytest.mark.parametrize("compiler", ["jax", Python()], ids=["jax", "python"])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_container_of_the_kernel_or_a_value_of_its_class_that_changes_is_noticed(compiler: Any, change: Any) -> None:
    kernel = type("Own", (Several,), {"shift": 1.0})()
    executor = _heuristics()
    f = executor.compile(kernel, _X, compiler=compiler)
    for _ in range(2):
        np.testing.assert_array_equal(f(_X), executor(kernel, _X))
    assert len(kernel.runs) > 1
    change(kernel)
    with pytest.raises(KernelError, match="have changed since it was compiled"):
        f(_X)


def test_what_is_no_array_is_refused_in_place_of_one() -> None:
    f = _heuristics().compile(Difference(), _X, _X, compiler="jax")
    for value in (1.0, "*", None, [_X]):
        with pytest.raises(KernelError, match="compile it for these"):
            f(_X, value)
    g = _heuristics().compile(Told(), _X, scale="*", compiler="jax")
    with pytest.raises(KernelError, match="compile it for these"):
        g(_X, scale=_X)


def test_mesh_and_axes_are_parts_of_the_key_of_what_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    monkeypatch.setenv("TAPELINE_OPS_RECORD_FILE", str(tmp_path / "calls.jsonl"))
    executor = _heuristics()
    calls: list[dict[str, Any]] = [{}, {"mesh": "2x2"}, {"mesh": "4"}, {"batch_axes": {"x": 0}}, {"method": "m"}]
    labels = {executor.compile(Difference(), _X, _X, compiler="jax", **call).label for call in calls}
    assert len(labels) == len(calls)
    assert len(get_invocations()["tests.difference@v0"]) >= len(calls)
    label = executor.compile(Difference(), _X, _X, compiler="jax", mesh="2x2").label
    inv = Invocation("tests.difference", (_X, _X), mesh="2x2")
    assert label.endswith(inv.call_key)
