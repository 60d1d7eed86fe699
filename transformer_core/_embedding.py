"""Token embeddings."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor


class Embedding(Module):
    """Rows of ``weight [V, D]`` by token id."""

    def __init__(self, vocabulary: int, size: int, *, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((vocabulary, size), dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """token_ids i32 [..]: [.., D]. Ids outside of the vocabulary are clamped into it."""
        return ctx.ops.embedding(ctx.parameter(self.weight), token_ids)
