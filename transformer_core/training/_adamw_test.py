import numpy as np
import pytest

from lang_core import EagerExecutionContext, OpError
from transformer_core.training import AdamW, Moments, cross_entropy

CTX = EagerExecutionContext()


def test_adamw_is_its_algorithm() -> None:
    """Three steps against the formulas of the paper, in f64."""
    rng = np.random.default_rng(0)
    optimizer = AdamW(beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.2)
    for shape, decay in (((2, 3), 0.2), ((3,), 0.0)):
        weights = rng.standard_normal(shape)
        mine = CTX.constant(weights.astype(np.float32))
        moments = Moments(CTX.ops.zeros(shape, "f32"), CTX.ops.zeros(shape, "f32"))
        first = second = np.zeros(shape)
        for step in (1, 2, 3):
            gradient, rate = rng.standard_normal(shape), 0.1 / step
            first, second = 0.8 * first + 0.2 * gradient, 0.9 * second + 0.1 * gradient**2
            change = first / (1 - 0.8**step) / (np.sqrt(second / (1 - 0.9**step)) + 1e-3)
            weights = weights - rate * (change + decay * weights)
            gradient = CTX.constant(gradient.astype(np.float32))
            mine, moments = optimizer.update(CTX, mine, gradient, moments, CTX.constant(rate), CTX.constant(step))
        np.testing.assert_allclose(mine.numpy(), weights, rtol=1e-5)


def test_large_gradients_are_scaled_to_the_largest_norm() -> None:
    gradients = {"a": CTX.constant([3.0, 0.0]), "b": CTX.constant([[4.0]])}
    assert float(AdamW(largest_norm=1.0).scale(CTX, gradients)) == pytest.approx(0.2, rel=1e-5)
    assert float(AdamW(largest_norm=6.0).scale(CTX, gradients)) == 1


def test_a_parameter_of_sixteen_bits_keeps_its_dtype() -> None:
    zeros = CTX.ops.zeros((2,), "f32")
    new, _ = AdamW().update(
        CTX, CTX.ops.ones((2,), "bf16"), CTX.ops.ones((2,), "bf16"), Moments(zeros, zeros), CTX.constant(0.5),
        CTX.constant(1),
    )  # fmt: skip
    assert new.dtype.name == "bf16"
    np.testing.assert_allclose(new.numpy().astype(np.float32), 0.5)


def test_cross_entropy_is_the_mean_of_negative_logarithms() -> None:
    logits = np.random.default_rng(1).standard_normal((2, 3, 5)).astype(np.float32)
    labels = np.array([[0, 4, 2], [1, 1, 3]], np.int32)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = -np.log(np.take_along_axis(shares, labels[..., None], -1)).mean()
    loss = cross_entropy(CTX, CTX.constant(logits), CTX.constant(labels))
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-6)


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(OpError, match=r"cross_entropy: labels have shape \(3,\), logits \(2, 3\): give one label"):
        cross_entropy(CTX, CTX.ops.zeros((2, 3), "f32"), CTX.ops.zeros((3,), "i32"))
