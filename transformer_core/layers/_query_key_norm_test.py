import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import ConfigError
from transformer_core.layers._attention_config import QueryKeyNorm, QueryKeyNormKind
from transformer_core.layers._norm import LayerNorm, RMSNorm
from transformer_core.layers._query_key_norm import LayerNormPerHead, head_norm
from transformer_core.layers._weights_testing import context_of

SIZES = st.integers(2, 7)


@given(SIZES, SIZES, SIZES, st.sampled_from([1e-6, 1e-3]))
def test_each_head_has_a_weight_of_its_own(tokens: int, heads: int, size: int, eps: float) -> None:
    norm = LayerNormPerHead(heads, size, eps=eps)
    ctx = context_of(norm)
    x = np.random.default_rng([tokens, heads, size]).standard_normal((1, tokens, heads, size))
    weight = ctx.parameter(norm.weight).numpy()
    expected = weight * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    np.testing.assert_allclose(norm(ctx, x.astype(np.float32)).numpy(), expected, rtol=1e-4, atol=1e-5)
    split = norm(ctx, x.astype(np.float32).reshape(1, tokens, heads, 1, size)).numpy()
    np.testing.assert_allclose(split[..., 0, :], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("norm", "kind", "shapes"),
    [
        (QueryKeyNorm(1e-5), RMSNorm, [(6,)]),
        (QueryKeyNorm(1e-5, whole=True), RMSNorm, [(24,)]),
        (QueryKeyNorm(1e-5, kind=QueryKeyNormKind.LAYER), LayerNorm, [(6,), (6,)]),
        (QueryKeyNorm(1e-5, kind=QueryKeyNormKind.LAYER_PER_HEAD), LayerNormPerHead, [(4, 6)]),
    ],
)
def test_kinds(norm: QueryKeyNorm, kind: type, shapes: list[tuple[int, ...]]) -> None:
    made = head_norm(norm, 4, 6, "f32")
    assert made is not None
    assert isinstance(made, kind)
    assert [parameter.spec.shape for _, parameter in made.named_parameters()] == shapes


def test_heads_without_a_norm() -> None:
    assert head_norm(None, 4, 6, "f32") is None
    assert head_norm(QueryKeyNorm(1e-5, after_rope=True, weighted=False), 4, 6, "f32") is None


@pytest.mark.parametrize("option", ["whole", "after_rope", "zero_centred"])
@pytest.mark.parametrize("kind", [QueryKeyNormKind.LAYER, QueryKeyNormKind.LAYER_PER_HEAD])
def test_layer_norms_are_over_each_head_before_rope(kind: QueryKeyNormKind, option: str) -> None:
    message = f"kind {kind.value}: expected norms of each head before RoPE, not zero-centred; found .*{option}=True"
    with pytest.raises(ConfigError, match=message):
        QueryKeyNorm(1e-5, kind=kind, **{option: True})
