"""Sentence embeddings of the states of tokens, with the matrices of sentence-transformers."""

from lang_core import ConfigError, DType, ExecutionContext, Module, Tensor, f32
from transformer_core._linear import Linear
from transformer_core.family._sentence import DenseConfig, Pooling, of_length_one

DENSE_NAMES = {"sentence.dense.{}": "{}_Dense.linear"}
"""Stored names of the matrices of a ``SentenceHead`` that is called ``sentence``."""


class _Matrices(Module):
    """Matrices by the numbers of their modules in modules.json."""

    def __init__(self, configs: tuple[DenseConfig, ...], dtype: DType) -> None:
        for config in configs:
            setattr(self, str(config.place), Linear(config.inputs, config.outputs, bias=config.bias, dtype=dtype))


class SentenceHead(Module):
    """Pooling, matrices, and scaling to length 1, as far as there are any."""

    def __init__(self, pooling: Pooling, dtype: DType) -> None:
        self.pooling = pooling
        self.dense = _Matrices(pooling.dense, dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Maps states x [B, T, D], with mask i32 [B, T], to f32 [B, D']."""
        ops, pooling = ctx.ops, self.pooling
        vector = pooling.pooled(ctx, ops.cast(x, f32), mask)
        for config in pooling.dense:
            matrix: Linear = getattr(self.dense, str(config.place))
            vector = ops.cast(matrix(ctx, ops.cast(vector, matrix.weight.spec.dtype)), f32)
            vector = ops.tanh(vector) if config.tanh else vector
        return of_length_one(ctx, vector) if pooling.normalize else vector


def check_vectors(pooling: Pooling, hidden: int) -> None:
    """Checks that a pooling is of vectors of the size of a model's states.

    Raises:
        ConfigError: it is of others.
    """
    if pooling.size not in (None, hidden):
        raise ConfigError(
            f"1_Pooling/config.json says vectors of {pooling.size} numbers, and config.json hidden_size {hidden}: "
            "fetch both again, from one model"
        )
