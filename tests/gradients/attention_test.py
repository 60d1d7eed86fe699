"""The attention of transformer_core's layers: its rule stands in compile_dag, which knows it by name alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag.gradient import COMPOSITE_RULES, value_and_gradient
from lang_core import EagerExecutionContext
from transformer_core import grouped_attention


def of_rows(scale: float | None, weights: np.ndarray):
    def loss(ctx, *operands):
        return ctx.ops.sum(ctx.ops.mul(grouped_attention(ctx, *operands, scale=scale), ctx.ops.constant(weights)))

    def reference(q, k, v, bias=0.0):
        scores = jnp.einsum("bkgth,bksh->bkgts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
        return jnp.sum(jnp.einsum("bkgts,bksh->bkgth", jax.nn.softmax(scores, -1), v) * weights)

    return loss, reference


@pytest.mark.parametrize(("biased", "scale"), [(False, None), (True, 0.4)])
def test_grouped_attention(biased: bool, scale: float | None) -> None:
    """Compares gradients by the rule, by its ops, and by jax; a learned bias too."""
    rng = np.random.default_rng(3)
    shapes = [(2, 2, 3, 4, 6), (2, 2, 5, 6), (2, 2, 5, 6), (3, 4, 5)][: 3 + biased]
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    loss, reference = of_rows(scale, rng.standard_normal((2, 2, 3, 4, 6)).astype(np.float32))
    ctx = EagerExecutionContext()
    run = value_and_gradient(loss, wrt=range(len(operands)))
    _, by_rule = run(ctx, *map(ctx.constant, operands))
    rule = COMPOSITE_RULES.pop("grouped_attention")
    try:
        _, by_ops = run(ctx, *map(ctx.constant, operands))
    finally:
        COMPOSITE_RULES["grouped_attention"] = rule
    wanted = jax.jit(jax.grad(reference, argnums=tuple(range(len(operands)))))(*operands)
    for mine, parts, theirs in zip(by_rule, by_ops, wanted, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(parts.numpy(), theirs, rtol=1e-4, atol=1e-5)
