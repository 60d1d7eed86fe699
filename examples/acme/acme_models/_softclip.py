"""The op ``acme.softclip``: its contract, and its meaning to NumPy, StableHLO, JAX and gradients."""

import jax.numpy as jnp
import numpy as np

from compile_dag.gradient import gradient_of
from compile_hlo.emit import emits
from lang_core import TensorSpec, define_op, require
from run_jax import computes


def _shape(x: TensorSpec, limit: float) -> tuple[TensorSpec, ...]:
    require(x.dtype.is_floating, "acme.softclip_c1", f"x is {x.dtype}: cast it to a floating dtype")
    require(limit > 0, "acme.softclip_c2", f"limit is {limit}")
    return (x,)


def _eager(x: np.ndarray, limit: float) -> np.ndarray:
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    return (limit * np.tanh(wide / limit)).astype(x.dtype)


SOFTCLIP = define_op(
    "acme.softclip",
    summary="limit * tanh(x / limit): x where it is small, never beyond the limit",
    attributes=("limit",),
    constraints=("x is floating", "limit > 0"),
    shape_rule=_shape,
    eager_rule=_eager,
)


def softclip(ctx, x, limit):
    """Maps x [..] to [..], below ``limit`` in magnitude."""
    return ctx.apply(SOFTCLIP, (x,), (float(limit),))[0]


@emits("acme.softclip")
def _emit(e, node):
    (limit,) = node.attributes
    (x,), spec = node.inputs, node.results[0].spec
    wide = TensorSpec(spec.shape, spec.dtype.accumulation)
    bound = e.filled(limit, wide)
    ratio = e.elementwise("divide", [e.operand(x, spec.shape, wide.dtype), bound], wide)
    clipped = e.elementwise("multiply", [e.elementwise("tanh", [ratio], wide), bound], wide)
    e.alias(node, e.convert(clipped, wide, spec.dtype))


@computes("acme.softclip")
def _jax(x, limit):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (limit * jnp.tanh(wide / limit)).astype(x.dtype)


@gradient_of("acme.softclip")
def _gradient(forward, cotangent):
    (limit,), ops = forward.attributes, forward.ops
    g, y = forward.wide(cotangent, forward.results[0])

    def of_x():
        ratio = ops.div(y, limit)
        return ops.mul(g, ops.mul(ops.add(ratio, 1.0), ops.sub(1.0, ratio)))

    return (of_x,)
