"""The op ``acme.softclip``: its contract, and its meaning to NumPy, StableHLO, JAX and gradients."""

from functools import partial

import jax.numpy as jnp
import numpy as np

from compile_dag.gradient import gradient_of
from compile_hlo.emit import Helper, SsaValue, call_helper, emits, in_name, register_helper
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


HELPER = "acme_softclip"
register_helper(HELPER)


@emits("acme.softclip")
def _emit(e, node):
    """Writes the op as a helper function of a flat array, which a CPU may have a kernel for (``_cpu_kernel.py``)."""
    (limit,) = node.attributes
    (x,), spec = node.inputs, node.results[0].spec
    flat = TensorSpec((spec.size,), spec.dtype)
    helper = Helper(HELPER, f"{flat.dtype.name}.{flat.size}.{in_name(limit)}", {"limit": limit})
    given = SsaValue(e.reshape(e.name(x), spec, flat.shape), flat)
    made = call_helper(e, helper, [given], [flat], partial(_body, limit))
    e.alias(node, e.reshape(made, flat, spec.shape))


def _body(limit, e, x):
    wide = TensorSpec(x.spec.shape, x.spec.dtype.accumulation)
    bound = e.filled(limit, wide)
    ratio = e.elementwise("divide", [e.convert(x.name, x.spec, wide.dtype), bound], wide)
    clipped = e.elementwise("multiply", [e.elementwise("tanh", [ratio], wide), bound], wide)
    return [e.convert(clipped, wide, x.spec.dtype)]


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
