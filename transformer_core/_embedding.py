"""Token embeddings."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor


class Embedding(Module):
    """Rows of ``weight [V, D]`` by token id. ``packable`` is as for ``Linear``."""

    def __init__(self, vocabulary: int, size: int, *, dtype: DType | str = "f32", packable: bool = True) -> None:
        self.packable = packable
        self.weight = Parameter((vocabulary, size), dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """token_ids i32 [..]: [.., D]. Ids outside of the vocabulary are clamped into it."""
        rows = ctx.ops.embedding(ctx.parameter(self.weight), token_ids)
        encoding = self.weight.encoding
        return rows if encoding is None else ctx.ops.dequantize(rows, encoding, self.weight.spec.dtype)
