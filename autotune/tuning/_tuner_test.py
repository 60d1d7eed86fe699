"""Which candidate a tuner takes, and what it measures."""

import warnings
from typing import Any

import numpy as np
import pytest

from autotune import (
    AutotunePolicy,
    ConfigSelectorChain,
    Executor,
    GradientWarning,
    Invocation,
    Kernel,
    KernelError,
    Tuner,
    TuningError,
    policy_override,
)
from autotune._kernels_testing import Blocks, Clock, Matmul, chain, matrices
from autotune.tuning._gradients import check_gradient


class Scripted(Tuner[int]):
    """Tuner that takes each sample from a script."""

    def __init__(self, rounds: int, script: dict[int, list[float]]) -> None:
        super().__init__(warmup=0, iters=1, rounds=rounds)
        self.script = {cfg: list(samples) for cfg, samples in script.items()}
        self.order: list[int] = []

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        """Returns the next sample."""
        self.order.append(fn.cfg)
        return self.script[fn.cfg].pop(0)


class _Fn:
    def __init__(self, cfg: int) -> None:
        self.cfg = cfg

    def __call__(self) -> float:
        return 1.0


def _tuned(rounds: int, script: dict[int, list[float]]) -> tuple[Any, Scripted]:
    tuner = Scripted(rounds, script)
    data = tuner.tune(_Fn, (), {}, list(script))
    assert not any(tuner.script.values()), "everything was asked for"
    assert data.best is not None
    return data, tuner


@pytest.mark.parametrize(
    ("again", "best"),
    [
        ([0.5, 1.5, 1.5, 1.5, 0.5, 1.5], 0),  # the smallest is smaller, and most are not
        ([0.5, 1.5, 0.5, 0.6, 0.5, 1.5], 1),
        ([0.98, 0.99, 0.98, 0.98, 0.99, 0.98], 0),  # all are smaller, by less than noise
    ],
)
def test_the_fastest_has_to_win_most_turns_once_more(again: list[float], best: int) -> None:
    result, _ = _tuned(2, {0: [1.0] * 8, 1: [0.5, 0.6, *again]})
    assert result.best.cfg == best
    assert [measurement.cfg for measurement in result.measurements] == [0, 1]
    assert result.measurements[1].seconds == min(0.5, *again)
    assert result.measurements[1].detail == (
        "" if best else f"not confirmed: {min(again):.3g} s beside 1 s when timed again"
    )


def test_turns_go_there_and_back() -> None:
    _, tuner = _tuned(2, {0: [1.0] * 2, 1: [1.1] * 2, 2: [1.2] * 2})
    assert tuner.order == [0, 1, 2, 2, 1, 0]
    _, tuner = _tuned(1, {0: [1.0] * 2, 1: [1.1], 2: [0.5] * 2})
    assert tuner.order == [0, 1, 2, 0, 2], "of one round, one turn more"


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "none of 0 candidates is good: there are no candidates"),
        ([1, 2], r"none of 2 candidates is good: 1: failed: ZeroDiv"),
    ],
)
def test_a_tuner_that_finds_nothing_says_so(candidates: list[int], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        Tuner().autotune(lambda cfg: lambda: 1 / 0, (), {}, candidates)


def test_bit_exact_on_request() -> None:
    class Doubled(Kernel[int, np.ndarray]):
        op_id = "tests.doubled"

        def run(self, a: Any, *, cfg: int) -> Any:
            return a * np.float32(2) if cfg == 0 else a * np.float32(2 + 2e-7)

        def heuristic_cfg(self, inv: Any) -> int:
            return 0

        def candidate_cfgs(self, inv: Any) -> list[int]:
            return [0, 1]

    for exact, best in ((False, 1), (True, 0)):
        made, _, _ = chain(lambda cfg: 1.0 - cfg / 2, policy=AutotunePolicy(bit_exact=exact))
        selection = made.select(Invocation("tests.doubled", matrices()[:1]), Doubled())
        assert selection.cfg == best
        assert selection.entry is not None
        assert "elements differ, and they may not" in selection.entry.measurements[1].detail or not exact


def test_the_real_clock_finds_the_faster_one() -> None:
    class Slow(Kernel[int, np.ndarray]):
        op_id = "tests.slow"

        def run(self, a: Any, *, cfg: int) -> Any:
            result = a
            for _ in range(cfg):
                result = a @ a.T
            return result[:1, :1] * 0

        def heuristic_cfg(self, inv: Any) -> int:
            return 200

        def candidate_cfgs(self, inv: Any) -> list[int]:
            return [100, 1]

    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain()
    assert made.choose(Invocation("tests.slow", (np.ones((64, 64), np.float32),)), Slow()) == 1


def test_a_candidate_that_was_fastest_by_chance_is_timed_again_and_not_taken() -> None:
    times = {1: iter([1.0, 1.0]), 2: iter([0.7, 1.1]), 3: iter([0.8])}
    made, _, _ = chain(lambda cfg: next(times[cfg.rows]))
    selection = made.select(Invocation("tests.matmul", matrices()), Matmul())
    assert selection.cfg == Blocks(1)
    assert selection.entry is not None
    said = {m.cfg.rows: (m.seconds, m.detail) for m in selection.entry.measurements if m.status == "ok"}
    assert said == {1: (1.0, ""), 2: (0.7, "not confirmed: 1.1 s beside 1 s when timed again"), 3: (0.8, "")}


@pytest.mark.parametrize(("fails", "taken"), [(2, 1), (1, 2)])
def test_what_fails_when_it_is_timed_again_is_not_taken(fails: int, taken: int) -> None:
    asked: list[int] = []

    def seconds(cfg: Blocks) -> float:
        asked.append(cfg.rows)
        if cfg.rows == fails and asked.count(fails) > 1:
            raise RuntimeError("lost")
        return 1.0 / cfg.rows if cfg.rows < 3 else 2.0

    made, _, _ = chain(seconds)
    selection = made.select(Invocation("tests.matmul", matrices()), Matmul())
    assert selection.cfg == Blocks(taken)
    assert selection.entry is not None
    assert {m.cfg.rows: m.detail for m in selection.entry.measurements if m.cfg.mode == "plain"}[fails] == (
        "RuntimeError: lost"
    )


def test_clock_is_a_tuner() -> None:
    assert Clock(lambda cfg: 1.0).autotune(lambda cfg: lambda: cfg * 0, (), {}, [1, 2]) == 1


class _Backward(Kernel[str, Any]):
    """2 x y, and a gradient that is right for some configurations."""

    op_id = "tests.backward"

    def __init__(self) -> None:
        super().__init__()
        self.backwards: list[str] = []

    def run(self, x: Any, y: Any, *, cfg: str) -> Any:
        return 2 * x * y

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> str:
        return "plain"

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[str]:
        return ["plain", "fast", "wrong", "swapped", "raises"]

    def fwd_with_residuals(self, x: Any, y: Any, *, cfg: str) -> Any:
        return self.run(x, y, cfg=cfg), None

    def vjp(self, residuals: Any, output: Any, d_output: Any, x: Any, y: Any, *, cfg: str) -> Any:
        self.backwards.append(cfg)
        if cfg == "raises":
            raise ValueError("no gradient of this kind")
        slopes = 2 * d_output * y, 2 * d_output * x
        return {"wrong": (slopes[0], -slopes[1]), "swapped": slopes[::-1]}.get(cfg, slopes)


def test_a_wrong_gradient_of_ones_own_is_not_chosen_by_default() -> None:
    seconds = {"plain": 5.0, "fast": 4.0, "wrong": 1.0, "swapped": 2.0, "raises": 0.5}
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((3, 3)).astype(np.float32) for _ in range(2)]
    for backward, best in ((None, "fast"), (False, "raises")):
        kernel, (made, _, _) = _Backward(), chain(seconds.__getitem__)
        options: dict[str, Any] = {} if backward is None else {"validate_backward": backward}
        with policy_override(made, **options):
            selection = Executor(made).explain(kernel, *arrays)
        assert selection.cfg == best
        assert selection.entry is not None
        statuses = {one.cfg: one.status for one in selection.entry.measurements}
        if backward is None:
            assert statuses == {
                "plain": "ok",
                "fast": "ok",
                "wrong": "rejected",
                "swapped": "rejected",
                "raises": "failed",
            }
            assert sorted(kernel.backwards) == sorted(seconds), "the gradient is compared once, and not timed"
        else:
            assert set(statuses.values()) == {"ok"}
            assert not kernel.backwards


class _InOps(Kernel[int, Any]):
    """x y + x, and a gradient that is wrong in every configuration if asked."""

    op_id = "tests.backward_in_ops"

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right = right

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.add(ctx.ops.mul(x, y), x)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2]

    def fwd_with_residuals(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        return self.run(x, y, cfg=cfg, ctx=ctx), None

    def vjp(self, residuals: Any, output: Any, d_output: Any, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        of_x = ctx.ops.mul(d_output, y)
        return ctx.ops.add(of_x, d_output) if self.right else of_x, ctx.ops.mul(d_output, x)


def test_a_gradient_that_is_wrong_in_every_configuration_is_an_error_of_the_kernel() -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((3, 3)).astype(np.float32) for _ in range(2)]
    made, _, _ = chain(lambda cfg: 1.0 / cfg)
    assert Executor(made).explain(_InOps(right=True), *arrays).cfg == 2
    made, _, _ = chain(lambda cfg: 1.0 / cfg)
    with pytest.raises(KernelError, match=r"its vjp is not the gradient of its run: argument 0: differs by .* correct"):
        Executor(made).explain(_InOps(right=False), *arrays)
    with policy_override(made, validate_backward=False):
        assert Executor(made).explain(_InOps(right=False), *arrays).cfg == 2
    with pytest.raises(KernelError, match="its vjp is not the gradient of its run"):
        Executor(chain(lambda cfg: 1.0 / cfg)[0]).explain(_InOps(right=False), *arrays, method="other")


class _Failing(_InOps):
    """A gradient, or a ``run``, that fails in one way."""

    def __init__(self, way: str) -> None:
        super().__init__(right=True)
        self.way = way

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        result = super().run(x, y, cfg=cfg, ctx=ctx)
        if self.way == "op":
            is_less = lambda value: ctx.ops.less(ctx.ops.sum(value), -1e9)  # noqa: E731 - data ends the loop
            return ctx.ops.while_loop(is_less, lambda value: (ctx.ops.mul(value, 2),), (result,))[0]
        return result

    def vjp(self, residuals: Any, output: Any, d_output: Any, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        if self.way == "form":
            raise NotImplementedError("no gradient of this form")
        if self.way == "raises":
            raise ZeroDivisionError("lost")
        slopes = super().vjp(residuals, output, d_output, x, y, cfg=cfg, ctx=ctx)
        return slopes[:1] if self.way == "short" else slopes


@pytest.mark.parametrize("way", ["form", "op", "raises", "short"])
def test_a_gradient_that_cannot_be_compared_is_reported_unless_there_is_none(way: str) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((3, 3)).astype(np.float32) for _ in range(2)]
    kernel = _Failing(way)
    inv: Invocation[int, Any] = Invocation(kernel.op_id, tuple(arrays))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        if way == "short":
            with pytest.raises(KernelError, match="gradient"):
                check_gradient(kernel, inv, 1)
        else:
            check_gradient(kernel, inv, 1)
    messages = [str(one.message) for one in shown if one.category is GradientWarning]
    message = "kernel 'tests.backward_in_ops': its vjp was not compared with the gradient of its run: "
    assert messages == ([f"{message}ZeroDivisionError: lost"] if way == "raises" else [])
