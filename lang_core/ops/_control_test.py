from typing import Any

import numpy as np
import pytest

from lang_core import OPS, EagerExecutionContext, OpError, Tensor, TensorSpec
from lang_core.ops._samples_testing import CTX, OPS_NOW, assert_same


def test_while_loop_runs_until_cond_fails() -> None:
    ops = OPS_NOW

    def body(n: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        odd = ops.equal(ops.rem(n, 2), 1)
        halved = ops.shift_right_logical(n, 1)
        return ops.select(odd, ops.add(ops.mul(n, 3), 1), halved), ops.add(steps, 1)

    last, steps = ops.while_loop(lambda n, _: ops.not_equal(n, 1), body, (ops.constant(27), ops.constant(0)))
    assert (int(last), int(steps)) == (1, 111)


def test_while_loop_may_run_no_round_and_takes_arrays() -> None:
    results = OPS_NOW.while_loop(lambda x: OPS_NOW.any(OPS_NOW.less(x, 0.0)), lambda x: (x,), (np.ones(3),))
    assert_same(results[0], np.ones(3))


def test_while_loop_sees_tensors_from_around_it() -> None:
    step = OPS_NOW.constant([1.0, 2.0])
    (result,) = OPS_NOW.while_loop(
        lambda x: OPS_NOW.less(OPS_NOW.sum(x), 10.0), lambda x: [OPS_NOW.add(x, step)], [OPS_NOW.zeros((2,), "f32")]
    )
    assert result.numpy().tolist() == [4.0, 8.0]


def _always(*_: Any) -> Tensor:
    return OPS_NOW.constant(True)


@pytest.mark.parametrize(
    ("cond", "body", "message"),
    [
        (lambda x: x, lambda x: (x,), r"^while\(f32\[2\].*\): while_c1: cond returns \(f32\[2\],\)"),
        (lambda x: OPS_NOW.less(x, 1.0), lambda x: (x,), r"while_c1: cond returns \(bool\[2\],\)"),
        (_always, lambda x: (OPS_NOW.sum(x),), r"while_c2: body returns \(f32\[\],\) for values \(f32\[2\],\)"),
        (_always, lambda x: (OPS_NOW.cast(x, "f64"),), r"while_c2: body returns \(f64\[2\],\) for values"),
        (_always, lambda x: (x, x), r"while_c2: body returns \(f32\[2\], f32\[2\]\) for values \(f32\[2\],\)"),
        (_always, lambda x: (), r"while_c2: body returns \(\) for values"),
    ],
)
def test_while_loop_refuses_other_specs(cond: Any, body: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        OPS_NOW.while_loop(cond, body, (OPS_NOW.zeros((2,), "f32"),))


def test_fori_loop_counts_in_i32() -> None:
    seen = []

    def body(i: Tensor, x: Tensor) -> tuple[Tensor]:
        seen.append((int(i), i.dtype.name))
        return (OPS_NOW.add(OPS_NOW.mul(x, 2), OPS_NOW.cast(i, "i64")),)

    (result,) = OPS_NOW.fori_loop(4, body, (OPS_NOW.constant(1, "i64"),))
    assert int(result) == 27
    assert seen == [(i, "i32") for i in range(4)]
    assert OPS_NOW.fori_loop(0, body, (result,))[0] is result


def test_cond_runs_one_branch_only() -> None:
    ran = []

    def branch(name: str, factor: float) -> Any:
        def run(x: Tensor) -> tuple[Tensor]:
            ran.append(name)
            return (OPS_NOW.mul(x, factor),)

        return run

    for pred in (np.array(True), CTX.constant(True), True):
        (result,) = OPS_NOW.cond(pred, branch("true", 2.0), branch("false", 3.0), (np.ones(2),))
        assert result.numpy().tolist() == [2, 2]
    OPS_NOW.cond(OPS_NOW.constant(False), branch("true", 2.0), branch("false", 3.0), [OPS_NOW.ones((2,), "f32")])
    assert ran == ["true", "true", "true", "false"]


@pytest.mark.parametrize("pred", [np.array(1), np.array([True]), np.array([True, False]), 1.0], ids=repr)
def test_cond_refuses_a_predicate_that_is_no_rank_0_bool(pred: Any) -> None:
    with pytest.raises(OpError, match=r"^cond\(.*\): cond_c1: pred is (f|i|bool)"):
        OPS_NOW.cond(pred, tuple, tuple)


def test_errors_inside_a_region_name_the_op_inside() -> None:
    ops = EagerExecutionContext().ops
    with pytest.raises(OpError, match=r"^add\(f32\[2\], f32\[3\]\): add_c1"):
        ops.while_loop(_always, lambda x: (ops.add(x, np.zeros(3, np.float32)),), (ops.zeros((2,), "f32"),))


class _Function:
    """Python code as a region."""

    def __init__(self, function: Any, *result_specs: TensorSpec) -> None:
        self.function, self.result_specs = function, result_specs

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(map(np.asarray, self.function(*arrays)))


_ODD = np.array([1.5, -2.0, np.nan, np.inf])


def test_rule_of_while_replaces_the_carried_values() -> None:
    x, step = np.zeros(4), _ODD
    count, none = np.array(0, np.int32), TensorSpec((), "i32")
    cond = _Function(lambda i, x, step: (i < 2,), TensorSpec((), "bool"))
    body = _Function(lambda i, x, step: (i + np.int32(1), x + step), none, TensorSpec((4,), "f64"))
    last, result = CTX.apply(OPS["while"], (count, x, step), (cond, body, 2))
    assert int(CTX.constant(last)) == 2
    np.testing.assert_array_equal(CTX.constant(result).numpy(), [3.0, -4.0, np.nan, np.inf])


@pytest.mark.parametrize("pred", [True, False])
def test_rule_of_cond_runs_the_branch(pred: bool) -> None:
    spec = TensorSpec((4,), "f64")
    branches = _Function(lambda x: (x,), spec), _Function(lambda x: (x * 3,), spec)
    (result,) = CTX.apply(OPS["cond"], (np.array(pred), _ODD), branches)
    np.testing.assert_array_equal(CTX.constant(result).numpy(), _ODD if pred else [4.5, -6.0, np.nan, np.inf])
