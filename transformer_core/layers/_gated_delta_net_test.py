import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, bf16, f32
from transformer_core.layers._gated_delta_net import DeltaState, GatedDeltaNet, HeadOrder, repeat_heads
from transformer_core.layers._weights_testing import context_of

CTX = EagerExecutionContext()


def _x(tokens: int, size: int = 7) -> np.ndarray:
    return np.random.default_rng(tokens).standard_normal((2, tokens, size), np.float32)


def _empty(block: GatedDeltaNet, batch: int = 2) -> DeltaState:
    return DeltaState(*(CTX.ops.zeros(spec.shape, spec.dtype) for spec in block.cache_layout(batch, 0).specs.values()))


def test_heads_are_repeated_both_ways():
    x = np.arange(1 * 2 * 3 * 1).reshape(1, 2, 3, 1)
    for order, heads in ((HeadOrder.CONSECUTIVE, [0, 0, 1, 1, 2, 2]), (HeadOrder.TILED, [0, 1, 2, 0, 1, 2])):
        np.testing.assert_array_equal(repeat_heads(CTX, CTX.ops.constant(x), 6, order).numpy(), x[:, :, heads])
    one = CTX.ops.constant(x)
    assert repeat_heads(CTX, one, 3, HeadOrder.TILED) is one


def test_tiled_heads_are_consecutive_ones_with_the_value_heads_permuted():
    """GGUF's order of heads gives the same as Hugging Face's."""
    keys, values, key, value = 2, 6, 4, 3
    consecutive, tiled = (GatedDeltaNet(7, keys, values, key, value, grouped=False, order=order) for order in HeadOrder)
    weights = {path: context_of(consecutive).parameter(part) for path, part in consecutive.named_parameters()}
    order = np.arange(values).reshape(keys, -1).T.reshape(-1)  # tiled head n is consecutive head order[n]
    rows = (order[:, None] * value + np.arange(value)).reshape(-1)
    of_all = np.concatenate([np.arange(2 * keys * key), 2 * keys * key + rows])
    permuted = {path: tensor.numpy() for path, tensor in weights.items()}
    for path, indices in (("in_proj_qkv", of_all), ("conv1d", of_all), ("in_proj_z", rows)):
        permuted[f"{path}.weight"] = permuted[f"{path}.weight"][indices]
    for path in ("in_proj_b.weight", "in_proj_a.weight", "dt_bias", "A_log"):
        permuted[path] = permuted[path][order]
    permuted["out_proj.weight"] = permuted["out_proj.weight"][:, rows]
    x = CTX.ops.constant(_x(9))
    with CTX.parameters_from(weights):
        wanted, state = consecutive(CTX, x, _empty(consecutive))
    with CTX.parameters_from({path: CTX.ops.constant(array) for path, array in permuted.items()}):
        actual, other = tiled(CTX, x, _empty(tiled))
    np.testing.assert_allclose(actual.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.delta.numpy(), state.delta.numpy()[:, order], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_tokens_that_do_not_count_leave_no_trace(count):
    block = GatedDeltaNet(7, 2, 4, 5, 3)
    ctx = context_of(block)
    before = block(ctx, _x(6), _empty(block))[1]
    x = _x(8)
    actual, state = block(ctx, x, before, ctx.ops.constant(count))
    wanted, exact = block(ctx, x[:, :count], before)
    np.testing.assert_allclose(actual.numpy()[:, :count], wanted.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state.conv.numpy(), exact.conv.numpy())
    np.testing.assert_allclose(state.delta.numpy(), exact.delta.numpy(), rtol=1e-5, atol=1e-6)


def test_short_dtypes_keep_a_state_of_f32():
    block = GatedDeltaNet(7, 2, 4, 5, 3, dtype="bf16")
    wide = GatedDeltaNet(7, 2, 4, 5, 3)
    ctx = context_of(block)
    x = _x(9).astype(bf16.numpy)
    y, state = block(ctx, x, _empty(block))
    assert (y.dtype, state.conv.dtype, state.delta.dtype) == (bf16, bf16, f32)
    weights = {path: CTX.ops.cast(ctx.parameter(part), "f32") for path, part in block.named_parameters()}
    with CTX.parameters_from(weights):
        exact, _ = wide(CTX, x.astype(np.float32))
    np.testing.assert_allclose(y.numpy().astype(np.float32), exact.numpy(), rtol=5e-2, atol=3e-2)


def test_parameters_have_hugging_faces_names_and_shapes():
    shapes = {path: part.spec.shape for path, part in GatedDeltaNet(7, 2, 4, 5, 3).named_parameters()}
    common = {
        "conv1d.weight": (32, 1, 4),
        "dt_bias": (4,),
        "A_log": (4,),
        "norm.weight": (3,),
        "out_proj.weight": (7, 12),
    }
    assert shapes == {"in_proj_qkvz.weight": (44, 7), "in_proj_ba.weight": (8, 7)} | common
    shapes = {path: part.spec.shape for path, part in GatedDeltaNet(7, 2, 4, 5, 3, grouped=False).named_parameters()}
    apart = {f"in_proj_{name}.weight": (rows, 7) for name, rows in (("qkv", 32), ("z", 12), ("b", 4), ("a", 4))}
    assert shapes == apart | common


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="gated delta net: 3 key heads do not divide 4 value heads"):
        GatedDeltaNet(7, 3, 4, 5, 3)
    with pytest.raises(ConfigError, match="one projection for q, k, v and z has consecutive heads, found tiled"):
        GatedDeltaNet(7, 2, 4, 5, 3, order=HeadOrder.TILED)
