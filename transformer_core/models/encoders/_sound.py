"""Models of raw sound: convolutions over samples, positions by a convolution, layers; with heads (wav2vec2's kin)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import (
    Argument,
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Parameter,
    Repeated,
    Tensor,
    TensorSpec,
    checked_choices,
    f32,
)
from transformer_core.family._model import Model, check_size
from transformer_core.flow import CompileProfile
from transformer_core.layers._convolution import Conv1d, GroupedConv1d
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import padding_bias
from transformer_core.layers._multi_head_attention import RopeTables
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._stack import EncoderConfig, EncoderLayer, encoder_profile, layer_norm

DEFAULT_FRAMES: Final = 999
"""T of a model of sound if the caller does not say: 20 seconds of wav2vec2's frames."""
LENGTHS: Final = "lengths"
"""Argument with the number of samples of each sound, behind which there is padding."""

_CONV_EPS: Final = 1e-5  # torch's default, of the norms of convolutions


@dataclass(frozen=True, slots=True)
class SampleConv:
    """One convolution over time: its outputs, taps and stride."""

    outputs: int
    width: int
    stride: int


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class SoundConfig(EncoderConfig):
    """Configuration of a model of raw sound; further attributes as of ``EncoderConfig``.

    Attributes:
        convs: the convolutions over samples, in order.
        conv_bias: whether they have biases.
        conv_activation: activation of all convolutions.
        layer_normed: whether a LayerNorm follows each of them; if not, the first one's channels are normed over time.
        projection_norm: whether a norm precedes the projection of their results.
        position_taps: taps of the convolution that gives positions.
        position_groups: its groups.
        adapter: inner size of the adapter behind each layer (MMS); 0 without.
        buckets: buckets of the gated biases of scores by distance (WavLM); 0 without.
        longest: distance from which on all share the last bucket.
        vocabulary: V of a CTC head; 0 without.
        projected: size of the vectors that a classifier pools; 0 without a classifier.
        labels: number of its classes.
        weighted: whether it reads a weighted sum of all layers' states.
    """

    convs: tuple[SampleConv, ...]
    conv_bias: bool
    conv_activation: Activation
    layer_normed: bool
    projection_norm: bool
    position_taps: int
    position_groups: int
    adapter: int = 0
    buckets: int = 0
    longest: int = 0
    vocabulary: int = 0
    projected: int = 0
    labels: int = 0
    weighted: bool = False

    @property
    def ratio(self) -> int:
        """Samples per frame."""
        return self._receptive[0]

    @property
    def fewest(self) -> int:
        """Samples of one frame."""
        return self._receptive[1]

    @property
    def _receptive(self) -> tuple[int, int]:
        step, width = 1, 1
        for conv in self.convs:
            width += (conv.width - 1) * step
            step *= conv.stride
        return step, width

    def samples(self, frames: int) -> int:
        """Returns the number of samples, a multiple of ``ratio``, that give T frames."""
        return (-(-self.fewest // self.ratio) + frames - 1) * self.ratio

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        sound = {"samples_per_frame": self.ratio, "fewest_samples": self.fewest}
        return {**self.stack.facts(), **sound, "characters": self.vocabulary, "labels": self.labels}


class SampleLayer(Module):
    """A convolution, perhaps a norm, and an activation."""

    def __init__(self, config: SoundConfig, index: int, dtype: DType) -> None:
        conv, inputs = config.convs[index], config.convs[index - 1].outputs if index else 1
        self.conv = Conv1d(inputs, conv.outputs, conv.width, stride=conv.stride, bias=config.conv_bias, dtype=dtype)
        normed = config.layer_normed or not index
        self.norm = LayerNorm(conv.outputs, eps=_CONV_EPS, dtype=dtype) if normed else None
        self.over_time, self.activation = not config.layer_normed, config.conv_activation

    def forward(self, ctx: ExecutionContext, x: Tensor, counts: Tensor) -> Tensor:
        """Maps x [B, T, in] to [B, T', out], of which rows of the batch have ``counts`` i32 [B]."""
        x = self.conv(ctx, x)
        if self.norm is not None:
            x = self._over_time(ctx, x, self.norm, counts) if self.over_time else self.norm(ctx, x)
        return self.activation(ctx, x)

    def _over_time(self, ctx: ExecutionContext, x: Tensor, norm: LayerNorm, counts: Tensor) -> Tensor:
        """Norms each channel over its frames that are not padding (torch's GroupNorm with a group per channel)."""
        ops, wide = ctx.ops, ctx.ops.cast(x, f32)
        real = frame_mask(ctx, counts, x.shape[1])
        frames = ops.reshape(ops.cast(counts, f32), (x.shape[0], 1, 1))

        def mean(values: Tensor) -> Tensor:
            return ops.div(ops.sum(ops.mul(values, real), (1,), keepdims=True), frames)

        apart = ops.sub(wide, mean(wide))
        normed = ops.mul(apart, ops.rsqrt(ops.add(mean(ops.mul(apart, apart)), norm.eps)))
        assert norm.bias is not None
        return ops.add(ops.mul(ops.cast(normed, x.dtype), ctx.parameter(norm.weight)), ctx.parameter(norm.bias))


def frame_mask(ctx: ExecutionContext, counts: Tensor, frames: int) -> Tensor:
    """Returns f32 [B, T, 1]: 1 of frames below ``counts`` i32 [B], 0 of padding."""
    real = ctx.ops.less(ctx.ops.iota((1, frames, 1), 1), ctx.ops.reshape(counts, (counts.shape[0], 1, 1)))
    return ctx.ops.cast(real, f32)


class Adapter(Module):
    """A norm and two matrices with a relu between, added to a layer's results (MMS)."""

    def __init__(self, config: SoundConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.norm = LayerNorm(hidden, eps=_CONV_EPS, dtype=dtype)
        self.up = Linear(hidden, config.adapter, bias=True, dtype=dtype)
        self.down = Linear(config.adapter, hidden, bias=True, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]."""
        inner = self.down(ctx, ctx.ops.relu(self.up(ctx, self.norm(ctx, x))))
        return ctx.ops.add(x, inner)


class SoundLayer(EncoderLayer):
    """Layer that an adapter may follow."""

    def __init__(self, config: SoundConfig, index: int, dtype: DType) -> None:
        super().__init__(config.stack, index, dtype)
        self.adapter = Adapter(config, dtype) if config.adapter else None

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; arguments as of ``EncoderLayer``."""
        x = super().forward(ctx, x, bias, tables, key_places)
        return x if self.adapter is None else self.adapter(ctx, x)


class SoundModel(Model[SoundConfig]):
    """Model of raw sound.

    ``forward(input_values f32 [B,samples], lengths i32 [B])`` gives, in f32, ``logits`` [B,T,V] of a CTC head,
    ``logits`` [B,labels] of a classifier, or ``last_hidden_state`` [B,T,D]. Behind the ``lengths`` samples of a sound
    there is padding, which changes none of its frames; results of frames of padding are 0.
    """

    def __init__(self, config: SoundConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, stack = self.config, self.config.stack
        self.convs = Repeated(len(own.convs), lambda index: SampleLayer(own, index, self.dtype))
        last = own.convs[-1].outputs
        self.projection_norm = LayerNorm(last, eps=stack.norm_eps, dtype=self.dtype) if own.projection_norm else None
        self.projection = Linear(last, stack.hidden, bias=True, dtype=self.dtype)
        self.positions = GroupedConv1d(stack.hidden, own.position_groups, own.position_taps, dtype=self.dtype)
        self.norm = layer_norm(stack, self.dtype)
        self.layers = Repeated(stack.layers, self.make_layer)
        self.head = Linear(stack.hidden, own.vocabulary, bias=True, dtype=self.dtype) if own.vocabulary else None
        self.layer_weights = Parameter((stack.layers + 1,), self.dtype) if own.weighted else None
        classes = own.projected > 0
        self.projector = Linear(stack.hidden, own.projected, bias=True, dtype=self.dtype) if classes else None
        self.classifier = Linear(own.projected, own.labels, bias=True, dtype=self.dtype) if classes else None

    def make_layer(self, index: int) -> EncoderLayer:
        """Makes a layer."""
        return SoundLayer(self.config, index, self.dtype)

    def tables(self, ctx: ExecutionContext, padding: Tensor) -> tuple[Tensor | None, RopeTables | None]:
        """Returns the bias and the tables that all layers take, of the bias f32 [B, 1, 1, 1, T] that hides padding."""
        del ctx
        return padding, None

    def results(self, ctx: ExecutionContext, input_values: Tensor, lengths: Tensor) -> Mapping[str, Tensor]:
        """Maps input_values f32 [B, samples] and lengths i32 [B] to the results of ``forward``."""
        ops = ctx.ops
        states, real = self._states(ctx, input_values, lengths)
        if self.projector is not None and self.classifier is not None:
            x = self.projector(ctx, self._weighted(ctx, states))
            pooled = ops.div(ops.sum(ops.mul(ops.cast(x, f32), real), (1,)), ops.sum(real, (1,)))
            return {"logits": ops.cast(self.classifier(ctx, ops.cast(pooled, self.dtype)), f32)}
        if self.head is not None:
            return {"logits": ops.mul(ops.cast(self.head(ctx, self._last(ctx, states)), f32), real)}
        return {"last_hidden_state": ops.mul(ops.cast(self._last(ctx, states), f32), real)}

    def _states(self, ctx: ExecutionContext, input_values: Tensor, lengths: Tensor) -> tuple[list[Tensor], Tensor]:
        """Returns the layers' inputs, and the last one's result; and the mask f32 [B, T, 1] of frames."""
        ops, config = ctx.ops, self.config
        x, counts = ops.reshape(ops.cast(input_values, self.dtype), (*input_values.shape, 1)), lengths
        for layer, conv in zip(self.convs, config.convs, strict=True):
            counts = ops.add(ops.quotient(ops.sub(counts, conv.width), conv.stride), 1)
            x = layer(ctx, x, counts)
        real = frame_mask(ctx, counts, x.shape[1])
        x = self.projection(ctx, x if self.projection_norm is None else self.projection_norm(ctx, x))
        x = ops.mul(x, ops.cast(real, self.dtype))
        x = ops.add(x, config.conv_activation(ctx, self.positions(ctx, x)))
        x = self.norm(ctx, x) if config.stack.post_norm else x
        bias, tables = self.tables(ctx, padding_bias(ctx, ops.reshape(real, real.shape[:2])))
        states: list[Tensor] = []
        for layer in self.layers:
            states.append(x)
            with ctx.block(layer.path):
                x = layer(ctx, x, bias, tables)
        return [*states, x], real

    def _last(self, ctx: ExecutionContext, states: list[Tensor]) -> Tensor:
        return states[-1] if self.config.stack.post_norm else self.norm(ctx, states[-1])

    def _weighted(self, ctx: ExecutionContext, states: list[Tensor]) -> Tensor:
        """Returns the weighted sum of all states, the last ones before their norm, as transformers 5 has them."""
        if self.layer_weights is None:
            return self._last(ctx, states)
        ops = ctx.ops
        weights = ops.softmax(ctx.parameter(self.layer_weights), 0)
        parts = [ops.mul(x, ops.slice_axis(weights, 0, index, index + 1)) for index, x in enumerate(states)]
        total = parts[0]
        for part in parts[1:]:
            total = ops.add(total, part)
        return total

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is the number of frames."""
        check_size("batch", batch)
        frames = sequence if sequence is not None else max_sequence if max_sequence is not None else DEFAULT_FRAMES
        check_size("sequence", frames, max_sequence, f"max_sequence ({max_sequence})")
        return encoder_profile(batch, frames, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        samples = TensorSpec((profile.batch, self.config.samples(profile.sequence)), "f32")
        lengths = Argument(LENGTHS, TensorSpec((profile.batch,), "i32"))
        return EntryPoint(profile.name, self.results, (Argument("input_values", samples), lengths))
