"""The linear layer."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices


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
            return ctx.ops.linear(x, weight, bias)
        product = ctx.ops.packed_linear(x, weight, encoding, activations=self.weight.activations)
        return product if bias is None else ctx.ops.add(product, bias)


class VocabularyLinear(Linear):
    """Linear layer that returns logits of the tokens of a vocabulary."""
