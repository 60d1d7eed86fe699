"""Rules of block-quantised products with stacked experts."""

import jax.numpy as jnp
from jax import lax

from lang_core import Activations, DType, Encoding
from run_jax._contract import exact
from run_jax._packed import activations_of, scaled_planes, unpacked
from run_jax._rules import Array, computes, convert


@computes("expert_block_product")
def _expert_block_product(
    planes: Array, scale: Array, total: Array, expert: Array, weight: Array, encoding: Encoding, dtype: DType
) -> Array:
    del total
    return _product(scaled_planes(planes, scale), expert, weight, encoding, dtype)


@computes("packed_expert_linear")
def _packed_expert_linear(
    x: Array, expert: Array, weight: Array, encoding: Encoding, dtype: DType, activations: Activations
) -> Array:
    return _product(activations_of(x, activations), expert, weight, encoding, dtype)


def _product(x: Array, expert: Array, weight: Array, encoding: Encoding, dtype: DType) -> Array:
    groups = jnp.repeat(x, expert.shape[0] // x.shape[0], axis=0)
    chosen = unpacked(jnp.take(weight, expert, axis=0, mode="clip"), encoding)
    return convert(lax.dot_general(groups, chosen, (((2,), (2,)), ((0,), (0,))), precision=exact()), dtype)
