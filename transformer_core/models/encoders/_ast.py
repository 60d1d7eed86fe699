"""AST (Gong et al. 2021, arXiv:2104.01778): a ViT of overlapping patches of a spectrogram."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import (
    Argument,
    ConfigError,
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Parameter,
    Tensor,
    TensorSpec,
    f32,
)
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import Model, ModelFamily, check_size
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import Size
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._stack import EncoderConfig, EncoderStack, encoder_profile, labels_of, layer_norm
from transformer_core.models.encoders._vision import StackDefaults, read_stack

_FIRST: Final = 2  # tokens before the patches: of the class, and of the distillation


@dataclass(frozen=True, slots=True, kw_only=True)
class AstConfig(EncoderConfig):
    """Configuration of an AST; further attributes as of ``EncoderConfig``.

    Attributes:
        frames: frames of a spectrogram.
        mels: mel bins of a frame.
        side: mel bins and frames of a patch.
        strides: mel bins and frames from a patch to the next one.
        labels: number of classes; 0 without a classifier.
    """

    frames: int
    mels: int
    side: int
    strides: Size
    labels: int = 0

    @property
    def tokens(self) -> int:
        """T."""
        down, across = self.strides
        return _FIRST + ((self.mels - self.side) // down + 1) * ((self.frames - self.side) // across + 1)

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {**self.stack.facts(), "frames": self.frames, "mel_bins": self.mels, "labels": self.labels}


class SpectrogramPatches(Module):
    """Embeds overlapping patches of a spectrogram; the weight [D, 1, side, side] lies as PyTorch's Conv2d has it.

    Computed as one matrix product of windows side by side, as ``Conv1d`` is.
    """

    def __init__(self, config: AstConfig, dtype: DType) -> None:
        hidden, self.side, self.strides = config.stack.hidden, config.side, config.strides
        self.weight = Parameter((hidden, 1, self.side, self.side), dtype)
        self.bias = Parameter((hidden,), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, frames, mels] to [B, T, D]: patches of the lowest mel bins first, in the order of time."""
        ops, side, (batch, frames, mels) = ctx.ops, self.side, x.shape
        (down, across), hidden = self.strides, self.weight.spec.shape[0]
        x = ops.reshape(ops.transpose(x, (0, 2, 1)), (batch, mels, frames, 1))
        lows = [
            ops.slice(x, (0, i, 0, 0), (batch, mels - side + i + 1, frames, 1), (1, down, 1, 1)) for i in range(side)
        ]
        x = ops.concat(lows, 3)
        rows = x.shape[1]
        starts = [
            ops.slice(x, (0, 0, i, 0), (batch, rows, frames - side + i + 1, side), (1, 1, across, 1))
            for i in range(side)
        ]
        x = ops.concat(starts, 3)  # of each frame of a patch its mel bins
        weight = ops.transpose(ops.reshape(ctx.parameter(self.weight), (hidden, side, side)), (0, 2, 1))
        x = ops.reshape(x, (batch, rows * x.shape[2], side * side))
        return ops.linear(x, ops.reshape(weight, (hidden, side * side)), ctx.parameter(self.bias))


class AstModel(Model[AstConfig]):
    """AST.

    ``forward(input_values f32 [B,frames,mels])`` gives, in f32, ``logits`` [B,labels] of a classifier, or
    ``last_hidden_state`` [B,T,D] and ``pooler_output`` [B,D], the mean of the first two tokens.
    """

    def __init__(self, config: AstConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.class_token = Parameter((1, 1, hidden), self.dtype)
        self.teacher_token = Parameter((1, 1, hidden), self.dtype)
        self.positions = Parameter((1, config.tokens, hidden), self.dtype)
        self.patches = SpectrogramPatches(config, self.dtype)
        self.encoder = EncoderStack(config.stack, self.dtype)
        self.norm = layer_norm(config.stack, self.dtype)
        self.head_norm = layer_norm(config.stack, self.dtype) if config.labels else None
        self.head = Linear(hidden, config.labels, bias=True, dtype=self.dtype) if config.labels else None

    def results(self, ctx: ExecutionContext, input_values: Tensor) -> Mapping[str, Tensor]:
        """Maps input_values f32 [B, frames, mels] to f32 logits [B, labels], or [B, T, D] and [B, D]."""
        ops = ctx.ops
        patches = self.patches(ctx, ops.cast(input_values, self.dtype))
        shape = patches.shape[0], 1, patches.shape[2]
        first = [ops.broadcast(ctx.parameter(token), shape) for token in (self.class_token, self.teacher_token)]
        x = ops.add(ops.concat([*first, patches], 1), ctx.parameter(self.positions))
        x = self.norm(ctx, self.encoder(ctx, x))
        pooled = ops.mean(ops.slice_axis(x, 1, 0, _FIRST), (1,))
        if self.head is not None and self.head_norm is not None:
            return {"logits": ops.cast(self.head(ctx, self.head_norm(ctx, pooled)), f32)}
        return {"last_hidden_state": ops.cast(x, f32), "pooler_output": ops.cast(pooled, f32)}

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is the number of a spectrogram's tokens.

        Raises:
            ConfigError: another T was asked for.
        """
        check_size("batch", batch)
        config = self.config
        for name, size in (("sequence", sequence), ("max_sequence", max_sequence)):
            if size is not None and size != config.tokens:
                raise ConfigError(
                    f"{name}: spectrograms of {config.frames} frames have {config.tokens} tokens; found {size}: "
                    "leave it out"
                )
        return encoder_profile(batch, config.tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, self.config.frames, self.config.mels), "f32")
        return EntryPoint(profile.name, self.results, (Argument("input_values", spec),))


_DEFAULTS: Final = StackDefaults(1e-12, "gelu", 768, 3072, 12, 12)


def _read(fields: ConfigFields, architecture: str) -> AstConfig:
    side, frames, mels = (
        fields.integer(name, default) for name, default in (("patch_size", 16), ("max_length", 1024), _MELS)
    )
    if side > min(frames, mels):
        fields.refuse("patch_size", f"at most max_length ({frames}) and num_mel_bins ({mels})")
    return AstConfig(
        architecture=architecture,
        stack=read_stack(fields, _DEFAULTS, qkv_bias=fields.boolean("qkv_bias", True)),
        frames=frames,
        mels=mels,
        side=side,
        strides=(fields.integer("frequency_stride", 10), fields.integer("time_stride", 10)),
        labels=0 if architecture == "ASTModel" else labels_of(fields),
    )


_MELS: Final = ("num_mel_bins", 128)
_LAYER, _STORED = "encoder.layers.{}.", "encoder.layer.{}."
_KEYS: Final = RenamedModules(
    {
        "class_token": "embeddings.cls_token",
        "teacher_token": "embeddings.distillation_token",
        "positions": "embeddings.position_embeddings",
        "patches": "embeddings.patch_embeddings.projection",
        **{f"{_LAYER}self_attn.{n[0]}_proj": f"{_STORED}attention.attention.{n}" for n in ("query", "key", "value")},
        f"{_LAYER}self_attn.o_proj": f"{_STORED}attention.output.dense",
        f"{_LAYER}attention_norm": f"{_STORED}layernorm_before",
        f"{_LAYER}mlp_norm": f"{_STORED}layernorm_after",
        f"{_LAYER}mlp.up_proj": f"{_STORED}intermediate.dense",
        f"{_LAYER}mlp.down_proj": f"{_STORED}output.dense",
        "norm": "layernorm",
        "head_norm": "classifier.layernorm",
        "head": "classifier.dense",
    },
    above=("audio_spectrogram_transformer.",),
)


def _family(architecture: str) -> ModelFamily[Any]:
    return ModelFamily(
        architecture,
        "audio-spectrogram-transformer",
        lambda fields: _read(fields, architecture),
        AstModel,
        lambda config: _KEYS,
        "*encoder.layer.{}",
        ("classifier.*",),
    )


AST: Final = (_family("ASTModel"), _family("ASTForAudioClassification"))
