"""Sentence embeddings of the states of tokens, with the modules of sentence-transformers after the pooling."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lang_core import (
    Argument,
    ConfigError,
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Tensor,
    TensorSpec,
    f32,
)
from transformer_core.family._packed_texts import PACKED_INPUTS, PackedTexts, packed_keys
from transformer_core.family._sentence import (
    DenseConfig,
    LayerNormConfig,
    Pooling,
    PoolingStage,
    UnitLength,
    of_length_one,
)
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import LayerNorm

DENSE_NAMES: Final = {
    "sentence.dense.{}": "{}_Dense.linear",
    "sentence.residual.{}": "{}_Dense.residual",
    "sentence.norm.{}": "{}_LayerNorm.norm",
}
"""Stored names of the modules of a ``SentenceHead`` that is called ``sentence``."""


class _ByPlace(Module):
    """Modules by their numbers in modules.json."""

    def __init__(self, modules: dict[int, Module]) -> None:
        for place, module in modules.items():
            setattr(self, str(place), module)


class SentenceHead(Module):
    """Pooling, the modules after it, and scaling to length 1, as far as there are any."""

    def __init__(self, pooling: Pooling, dtype: DType) -> None:
        self.pooling = pooling
        matrices = [stage for stage in pooling.stages if isinstance(stage, DenseConfig)]
        norms = [stage for stage in pooling.stages if isinstance(stage, LayerNormConfig)]
        self.dense = _ByPlace(
            {one.place: Linear(one.inputs, one.outputs, bias=one.bias, dtype=dtype) for one in matrices}
        )
        self.residual = _ByPlace(
            {
                one.place: Linear(one.inputs, one.outputs, dtype=dtype)
                for one in matrices
                if one.residual and one.inputs != one.outputs
            }
        )
        self.norm = _ByPlace({one.place: LayerNorm(one.size, dtype=dtype) for one in norms})

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        mask: Tensor,
        pooling_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Maps states x [B, T, D], or of ``PackedTexts`` [1, T, D], to f32 [B, D'].

        Args:
            ctx: context.
            x: states.
            mask: i32 [B, T], 0 where padding.
            pooling_mask: i32 [B, T], 0 where padding or the prompt; ``mask`` if None.
            positions: i32 [1, T], if texts are packed; 0 to T - 1 if None.
        """
        vector = self.pooling.pooled(ctx, ctx.ops.cast(x, f32), mask, pooling_mask, positions)
        for stage in self.pooling.stages:
            vector = self._staged(ctx, stage, vector)
        return of_length_one(ctx, vector) if self.pooling.normalize else vector

    def packed(self, ctx: ExecutionContext, x: Tensor, texts: PackedTexts) -> Tensor:
        """Maps states x [1, S, D] of packed texts, from ``PackedTexts.states``, to f32 [R, D']."""
        return self(ctx, x, texts.mask(ctx), texts.pooling_mask(ctx), texts.state_positions(ctx))

    def _staged(self, ctx: ExecutionContext, stage: PoolingStage, vector: Tensor) -> Tensor:
        ops = ctx.ops
        if isinstance(stage, UnitLength):
            return of_length_one(ctx, vector)
        if isinstance(stage, LayerNormConfig):
            norm: LayerNorm = getattr(self.norm, str(stage.place))
            return ops.cast(norm(ctx, ops.cast(vector, norm.weight.spec.dtype)), f32)
        matrix: Linear = getattr(self.dense, str(stage.place))
        x = ops.cast(vector, matrix.weight.spec.dtype)
        result = stage.activation(ctx, ops.cast(matrix(ctx, x), f32))
        if not stage.residual:
            return result
        second: Linear | None = getattr(self.residual, str(stage.place), None)
        return ops.add(result, vector if second is None else ops.cast(second(ctx, x), f32))


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


def pooling_inputs(pooling: Pooling | None) -> tuple[str, ...]:
    """Returns the names of the arguments that a pooling needs beside the encoder's."""
    return () if pooling is None or pooling.include_prompt else ("pooling_mask",)


def packed_entry_point(
    name: str,
    results: Callable[[ExecutionContext, PackedTexts], Mapping[str, Tensor]],
    spec: TensorSpec,
    inputs: Sequence[str],
) -> EntryPoint:
    """Returns the entry point of packed texts, with the arguments of ``inputs`` that are given per token.

    ``text_ids``, ``positions`` and ``key_places`` take the place of ``attention_mask``.
    """
    names = [name for one in inputs for name in (PACKED_INPUTS if one == "attention_mask" else (one,))]

    keys = TensorSpec((1, packed_keys(spec.shape[1])), spec.dtype)

    def run(ctx: ExecutionContext, *tensors: Any) -> Mapping[str, Tensor]:
        arguments = dict(zip(names, tensors, strict=True))
        pooled = arguments.pop("pooling_mask", None)
        return results(ctx, PackedTexts(**arguments, pooled=pooled))

    return EntryPoint(name, run, tuple(Argument(one, keys if one == "key_places" else spec) for one in names))


def text_entry_point(
    name: str, results: Callable[..., Mapping[str, Tensor]], spec: TensorSpec, inputs: Sequence[str]
) -> EntryPoint:
    """Returns the entry point of an encoder of texts: every argument has the same spec, and is passed by its name."""

    def run(ctx: ExecutionContext, *tensors: Any) -> Mapping[str, Tensor]:
        return results(ctx, **dict(zip(inputs, tensors, strict=True)))

    return EntryPoint(name, run, tuple(Argument(one, spec) for one in inputs))
