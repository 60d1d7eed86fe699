"""Kernels that are written wrongly, in every way: a typed error says what to write instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autotune import (
    ConfigSelectionError,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    MissingMethodError,
    RecordedCall,
    Tuner,
    autotune_recorded,
    map_arrays,
    powers_of_two,
)
from autotune._kernels_testing import Blocks, Matmul, matrices
from lang_core import EagerExecutionContext

_X = np.ones((2, 3), np.float32)


def _executor(policy: str = "heuristics") -> Executor[Any, Any]:
    return Executor(ConfigSelectorChain(policy=policy, tuner=Tuner(warmup=0, iters=1, rounds=1)))


class Good(Kernel[Blocks, Any]):
    """Doubles."""

    op_id = "tests.good"

    def run(self, x: Any, *, cfg: Blocks) -> Any:
        return x * 2

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> Blocks:
        return Blocks()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> Any:
        return (Blocks(rows) for rows in (1, 2))


def _with(**members: Any) -> Kernel[Any, Any]:
    """Returns a kernel with other methods or attributes."""
    return type("Wrong", (Good,), members)()


@pytest.mark.parametrize("policy", ["heuristics", "autotune"])
def test_a_kernel_by_the_contract_runs(policy: str) -> None:
    np.testing.assert_array_equal(_executor(policy)(Good(), _X), _X * 2)


@pytest.mark.parametrize(
    ("returned", "kinds"),
    [
        (None, "NoneType"),
        (_X, "ndarray"),
        ((_X,), r"\(ndarray\)"),
        ((_X, {}), r"\(ndarray, dict\)"),
        (((_X,), None), r"\(tuple, NoneType\)"),
        (((_X,), {}, 1), r"\(tuple, dict, int\)"),
        ([(_X,), {}], "list"),
    ],
)
def test_prepare_that_does_not_return_arguments(returned: Any, kinds: str) -> None:
    wrong = _with(prepare=lambda self, *args, **kwargs: returned)
    message = rf"kernel 'tests.good': prepare returned {kinds}: return \(args, kwargs\), a tuple and a dict"
    for call in (_executor(), _executor().choose_config, _executor().explain, _executor().value_and_pullback):
        with pytest.raises(KernelError, match=message):
            call(wrong, _X)
    with pytest.raises(KernelError, match=message):
        _executor().compile(wrong, _X, compiler="jax")


def test_prepare_may_return_a_list_of_arguments() -> None:
    np.testing.assert_array_equal(_executor()(_with(prepare=lambda self, x: ([x], {})), _X), _X * 2)


@pytest.mark.parametrize(
    ("members", "policy", "message"),
    [
        ({"heuristic_cfg": lambda self, inv: None}, "heuristics", "heuristic_cfg returned None: expected a Blocks"),
        ({"heuristic_cfg": lambda self, inv: 3}, "heuristics", "heuristic_cfg returned 3: expected a Blocks"),
        (
            {"heuristic_cfg": lambda self: Blocks()},
            "heuristics",
            r"heuristic_cfg takes .*: write heuristic_cfg\(self, inv",
        ),
        ({"candidate_cfgs": lambda self, inv: None}, "autotune", "candidate_cfgs returned None: return a list of conf"),
        ({"candidate_cfgs": lambda self, inv: Blocks()}, "autotune", r"candidate_cfgs returned Blocks\(rows=1"),
        (
            {"candidate_cfgs": lambda self, inv: [Blocks(), None]},
            "autotune",
            "returned a list with None: expected a Bl",
        ),
        (
            {"candidate_cfgs": lambda self: []},
            "autotune",
            r"candidate_cfgs takes \(\): write candidate_cfgs\(self, inv\)",
        ),
        ({"tolerance": "small"}, "autotune", "tolerance='small': expected a number of at least 0, or None"),
        ({"tolerance": float("nan")}, "autotune", "tolerance=nan: expected a number"),
        ({"run": lambda self, x: x}, "heuristics", r"Wrong.run has no argument cfg: write run\(self, ..., \*, cfg\)"),
        ({"key_builder": lambda inv: 5}, "heuristics", "key_builder returned 5: return a text that is not empty"),
        (
            {"bucket": lambda shape: None},
            "heuristics",
            r"bucket returned None for the shape \(2, 3\): return a tuple of",
        ),
        ({"bucket": lambda shape: ("a",)}, "heuristics", "bucket returned .* for the shape"),
        ({"op_id": 7}, "heuristics", "Wrong has the op_id 7: set op_id to a name"),
        (
            {"__init__": lambda self: None, "op_id": ""},
            "heuristics",
            r"Wrong has the op_id '': .*super\(\).__init__\(\)",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_methods_and_attributes_against_the_contract(members: dict[str, Any], policy: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        _executor(policy)(_with(**members), _X)


def test_missing_methods() -> None:
    class Empty(Kernel[int, Any]):
        op_id = "tests.empty"

    class Configured(Empty):
        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 1

    class Running(Empty):
        def run(self, x: Any, *, cfg: int) -> Any:
            return x

    with pytest.raises(MissingMethodError, match=r"Configured has no run\(\*args, cfg, \*\*kwargs\)"):
        _executor()(Configured(), _X)
    with pytest.raises(MissingMethodError, match=r"Configured has no run"):
        _executor("autotune")(Configured(), _X)
    for policy in ("heuristics", "autotune"):
        with pytest.raises(
            ConfigSelectionError, match=r"(?s)heuristics: Running has no heuristic_cfg\(inv\).*pass cfg="
        ):
            _executor(policy)(Running(), _X)
        assert _executor(policy)(Running(), _X, cfg=1) is _X
    assert issubclass(MissingMethodError, KernelError)
    with pytest.raises(MissingMethodError, match="has no fwd_with_residuals"):
        Empty().fwd_with_residuals(_X, cfg=1)
    with pytest.raises(MissingMethodError, match="has no vjp"):
        Empty().vjp(None, _X, _X, _X, cfg=1)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Good, r"expected a kernel, found its class Good: pass Good\(\)"),
        (len, "expected a kernel, found <built-in function len>: pass an object of a subclass of autotune.Kernel"),
        (None, "expected a kernel, found None"),
    ],
)
def test_what_is_not_a_kernel(kernel: Any, message: str) -> None:
    calls: list[Callable[..., Any]] = [_executor(), _executor().choose_config, _executor().explain, _executor().compile]
    for call in calls:
        with pytest.raises(KernelError, match=message):
            call(kernel, _X)


def test_arguments_of_a_call_that_are_of_another_kind() -> None:
    executor: Any = _executor()
    with pytest.raises(KernelError, match="ctx=5 is not an ExecutionContext"):
        executor(Good(), _X, ctx=5)
    with pytest.raises(KernelError, match="batch_axes=0: expected a dict from argument to axis"):
        executor(Good(), _X, batch_axes=0)
    with pytest.raises(KernelError, match="was called with cfg= 'fast': expected a Blocks"):
        executor(Good(), _X, cfg="fast")
    with pytest.raises(KernelError, match=r"compiler=5 has no method environment\(\)"):
        executor.compile(Good(), _X, compiler=5)
    assert type(executor(_Context(), _X, ctx=EagerExecutionContext())).__name__ == "EagerTensor"


class _Context(Kernel[int, Any]):
    """Negates, in a context."""

    op_id = "tests.negate"

    def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.negate(x)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


def test_parts_of_an_executor_that_are_of_another_kind(tmp_path: Any) -> None:
    wrong: Any = object()
    with pytest.raises(KernelError, match=r"chooser=<object .*> has no method choose\(\)"):
        Executor(wrong)
    with pytest.raises(
        KernelError, match=r"compiler=<object .*> has no method environment\(\): expected an object with"
    ):
        Executor(compiler=wrong)
    with pytest.raises(KernelError, match=r"cache=\{\} has no method find\(\)"):
        ConfigSelectorChain({})  # pyright: ignore[reportArgumentType]
    with pytest.raises(KernelError, match=r"tuner=<object .*> has no method autotune\(\)"):
        ConfigSelectorChain(tuner=wrong)
    with pytest.raises(KernelError, match=r"persistent='.*k.json' has no method store\(\)"):
        ConfigSelectorChain(persistent=str(tmp_path / "k.json"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(KernelError, match="policy=3: expected an AutotunePolicy, or one of autotune, heuristics"):
        ConfigSelectorChain(policy=3)  # pyright: ignore[reportArgumentType]
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain()
    with pytest.raises(KernelError, match=r"policy=\[\]: expected an AutotunePolicy"):
        chain.policy = []  # pyright: ignore[reportAttributeAccessIssue]


def test_choosers_tuners_and_compilers_that_give_something_else() -> None:
    class Nothing:
        def choose(self, inv: Any, kernel: Any) -> Any:
            return None

        def autotune(self, make_fn: Any, args: Any, kwargs: Any, candidates: Any) -> Any:
            return 17

    class Compiler:
        name = "theirs"

        def __init__(self, environment: Any) -> None:
            self._environment = environment

        def environment(self, arrays: Any) -> Any:
            return self._environment

        def compile(self, request: Any) -> Any:
            return None

    with pytest.raises(KernelError, match="Nothing chose None: expected a Blocks"):
        Executor(Nothing())(Good(), _X)
    with pytest.raises(KernelError, match="Nothing chose None: expected a Blocks"):
        Executor(Nothing()).choose_config(Good(), _X)
    with pytest.raises(KernelError, match="Nothing chose None: expected a Blocks"):
        Executor(Nothing()).value_and_pullback(Good(), _X)
    foreign: Any = Nothing()
    with pytest.raises(KernelError, match="the tuner Nothing chose 17: expected a Blocks"):
        Executor(ConfigSelectorChain(tuner=foreign))(Good(), _X)
    with pytest.raises(KernelError, match=r"'theirs': environment\(\) gave None: return an Environment"):
        _executor().compile(Good(), _X, compiler=Compiler(None))
    here = Invocation("x", (_X,)).where()
    with pytest.raises(KernelError, match=r"the compiler .theirs. gave None for tests.good@v0: no function"):
        _executor().compile(Good(), _X, compiler=Compiler(here))


def test_a_kernel_without_results_and_gradients_of_another_structure() -> None:
    def nothing(self: Any, x: Any, *, cfg: Any, ctx: Any) -> None:
        del self, x, cfg, ctx

    with pytest.raises(KernelError, match=r"tests.good.* returned no array: return an array, or a tuple of arrays"):
        _executor().compile(_with(run=nothing), _X, compiler="iree")

    class Pair(Good):
        def fwd_with_residuals(self, x: Any, *, cfg: Blocks) -> Any:
            return x * 2, ()

        def vjp(self, residuals: Any, output: Any, d_output: Any, *args: Any, cfg: Blocks) -> Any:
            return ((d_output, d_output),)

    _, pullback = _executor().value_and_pullback(Pair(), _X)
    with pytest.raises(KernelError, match="vjp gave 2 arrays for argument 0, which has 1: return its structure"):
        pullback(_X)


def test_example_arguments_of_another_kind_are_a_reason_not_to_tune() -> None:
    wrong = _with(example_args=lambda self, args, kwargs: None)
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain()
    inv = Invocation(wrong.op_id, (_X,))
    specs = map_arrays(lambda array: array, inv.specs()[0])
    call = RecordedCall(chain.key(inv, wrong), "", wrong.op_id, specs, {}, live=wrong)
    result = autotune_recorded(chain, [call])
    assert not result.entries
    assert "example_args returned NoneType: return (args, kwargs)" in result.skipped[0][1]


def test_a_dataclass_and_its_subclasses_are_configurations() -> None:
    @dataclass(frozen=True)
    class More(Blocks):
        extra: int = 0

    a, b = matrices()
    np.testing.assert_allclose(_executor()(Matmul(), a, b, cfg=More(2)), a @ b, rtol=1e-6)
    assert Good.cfg_type is Blocks
    assert _executor().choose_config(_with(bucket=powers_of_two), _X) == Blocks()
