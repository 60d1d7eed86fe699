"""The eager context with activations of packed products in blocks of integers, as devices take them."""

from typing import Any, Final

from compile_hlo.passes import LOWERED
from lang_core import ACTIVATION_BITS, EagerExecutionContext, Op, Tensor
from lang_core.ops import OPS

_QUANTIZE: Final = OPS["block_quantize"]


class RoundedContext(EagerExecutionContext):
    """Computes products with packed weights as the lowered module does: x in blocks of integers."""

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Checks the op's contract and computes it."""
        product = LOWERED.get(op.name)
        if product is None:
            return super().apply(op, inputs, attributes)
        x, *others = inputs
        *rest, activations = attributes
        blocks = super().apply(_QUANTIZE, (x,), (ACTIVATION_BITS[activations],))
        return super().apply(product, (*blocks, *others), tuple(rest))
