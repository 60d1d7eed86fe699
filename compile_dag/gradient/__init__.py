"""Reverse-mode gradients: of graphs and of recorded functions, as ordinary ops (docs/design/0006-gradients.md).

>>> from compile_dag.gradient import value_and_gradient
>>> from lang_core import EagerExecutionContext
>>> ctx = EagerExecutionContext()
>>> def loss(ctx, weights, x):
...     return ctx.ops.sum(ctx.ops.mul(weights["w"], x))
>>> value, (gradients,) = value_and_gradient(loss)(ctx, {"w": ctx.ops.ones((2,), "f32")}, ctx.constant([2.0, 3.0]))
>>> gradients["w"].numpy().tolist()
[2.0, 3.0]
"""

from compile_dag.gradient import (
    _attention,
    _composites,
    _contract,
    _control,
    _elementwise,
    _gated_delta,
    _indexing,
    _reduce,
    _shape,
)
from compile_dag.gradient._api import gradient, value_and_gradient
from compile_dag.gradient._rules import (
    COMPOSITE_RULES,
    NOT_DIFFERENTIABLE,
    RULES,
    ForwardCall,
    composite_gradient,
    gradient_of,
    not_differentiable,
)

del _attention, _composites, _contract, _control, _elementwise, _gated_delta, _indexing, _reduce, _shape
