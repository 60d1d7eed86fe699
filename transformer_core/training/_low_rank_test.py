import numpy as np
import pytest

from lang_core import EagerExecutionContext, MappingWeights, Module, OpError
from transformer_core import Linear
from transformer_core.training import LowRankChange, low_rank_linears, noted_linears, weighted_cross_entropy

_RNG = np.random.default_rng(5)


class _Two(Module):
    def __init__(self, dtype: str = "f32") -> None:
        self.first = Linear(4, 6, bias=True, dtype=dtype)
        self.second = Linear(6, 3, dtype=dtype)

    def forward(self, ctx, x):
        return self.second(ctx, self.first(ctx, x))


def normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


_WEIGHTS = {"first.weight": normal(6, 4), "first.bias": normal(6), "second.weight": normal(3, 6)}


@pytest.mark.parametrize("rows", [None, (2, 3, 4, 5, 6, 7), (7, 0, 3, 1, 6, 2)])
def test_a_change_is_that_of_the_merged_weight(rows: tuple[int, ...] | None) -> None:
    right, left, x = normal(2, 4), normal(6 if rows is None else 8, 2), normal(2, 5, 4)
    change_of_weight = 0.5 * (left if rows is None else left[[*rows]]) @ right
    merged = {**_WEIGHTS, "first.weight": _WEIGHTS["first.weight"] + change_of_weight}
    ctx = EagerExecutionContext(MappingWeights(_WEIGHTS))
    change = LowRankChange(ctx.constant(right), ctx.constant(left), 0.5, rows)
    with low_rank_linears(ctx, {"first.weight": change, "third.weight": change}):
        changed = _Two()(ctx, ctx.constant(x)).numpy()
    wanted = _Two()(EagerExecutionContext(MappingWeights(merged)), ctx.constant(x)).numpy()
    np.testing.assert_allclose(changed, wanted, rtol=1e-5, atol=1e-6)


def test_linear_layers_are_noted() -> None:
    ctx, paths = EagerExecutionContext(MappingWeights(_WEIGHTS)), set[str]()
    with noted_linears(ctx, paths):
        _Two()(ctx, ctx.constant(normal(1, 4)))
    assert paths == {"first.weight", "second.weight"}


def test_a_small_change_counts_beside_weights_of_sixteen_bits() -> None:
    """Added to a bf16 weight of 1, a change of 2 ** -10 would be lost."""
    ones = {"first.weight": np.ones((6, 4), np.float32), "first.bias": np.full(6, -4, np.float32)}
    ctx = EagerExecutionContext(MappingWeights({**ones, "second.weight": np.ones((3, 6), np.float32)}))
    right, left = np.full((1, 4), 2.0**-10, np.float32), np.ones((6, 1), np.float32)
    with low_rank_linears(ctx, {"first.weight": LowRankChange(ctx.constant(right), ctx.constant(left), 1.0)}):
        changed = _Two("bf16").first(ctx, ctx.constant(np.full((1, 4), 1 / 8, np.float32), "bf16")).numpy()
    np.testing.assert_allclose(changed.astype(np.float32), np.full((1, 6), -3.5), rtol=1e-2)
    assert changed.dtype.name == "bfloat16"


def test_weighted_cross_entropy_is_the_weighted_sum() -> None:
    logits, labels = normal(2, 3, 5), np.array([[0, 4, 2], [1, 1, 3]], np.int32)
    weights = np.array([[0.5, 0, 0.25], [0, 0.125, 0.125]], np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = -(np.log(np.take_along_axis(shares, labels[..., None], -1))[..., 0] * weights).sum()
    ctx = EagerExecutionContext()
    loss = weighted_cross_entropy(ctx, ctx.constant(logits), ctx.constant(labels), ctx.constant(weights))
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-6)


def test_weights_of_another_shape_are_refused() -> None:
    ctx = EagerExecutionContext()
    labels, weights = ctx.ops.zeros((2, 3), "i32"), ctx.ops.zeros((2,), "f32")
    with pytest.raises(OpError, match=r"weighted_cross_entropy: weights have shape \(2,\), labels \(2, 3\)"):
        weighted_cross_entropy(ctx, ctx.ops.zeros((2, 3, 5), "f32"), labels, weights)
