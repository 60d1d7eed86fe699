"""The linear layer."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices
from transformer_core.layers._low_rank import LowRankDelta


@checked_choices
class Linear(Module):
    """``x [.., in] @ weight [out, in].T + bias [out]``. The weight lies output-major, as checkpoints have it.

    Args:
        inputs: number of inputs.
        outputs: number of outputs.
        bias: whether there is a bias.
        dtype: dtype of the parameters.
        packable: whether the weight may be packed; not if code outside of this module computes with it.
    """

    _delta: LowRankDelta | None = None  # of the running call
    _adds_delta: bool = False  # whether it was added

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = False, dtype: DType | str = "f32", packable: bool = True
    ) -> None:
        self.packable = packable
        self.weight = Parameter((outputs, inputs), dtype)
        self.bias = Parameter((outputs,), dtype) if bias else None

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., in] to [.., out]."""
        bias = None if self.bias is None else ctx.parameter(self.bias)
        weight, encoding = ctx.parameter(self.weight), self.weight.encoding
        if encoding is None:
            product = ctx.ops.linear(x, weight, bias)
        else:
            product = ctx.ops.packed_linear(x, weight, encoding, activations=self.weight.activations)
            product = product if bias is None else ctx.ops.add(product, bias)
        if self._delta is None:
            return product
        self._adds_delta = True
        return self._delta.added(ctx, x, product)

    def take_delta(self, delta: LowRankDelta) -> None:
        """Adds a low-rank change to the products from now on, beside the weight."""
        self._delta, self._adds_delta = delta, False

    @property
    def adds_delta(self) -> bool:
        """True once a product had the change that ``take_delta`` gave."""
        return self._adds_delta


class VocabularyLinear(Linear):
    """Linear layer that returns logits of the tokens of a vocabulary."""
