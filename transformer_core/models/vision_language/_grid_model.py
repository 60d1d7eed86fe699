"""Decoders that see images of any size: RoPE turns by time, row and column (M-RoPE, arXiv:2409.12191)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    checked_choices,
)
from transformer_core._names import ENCODE_IMAGE
from transformer_core.family._decoder import decoder_flow
from transformer_core.family._layer import DecoderLayer
from transformer_core.flow import Block, CompileProfile, FlowContext, FlowValue, ModelFlow
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._position_cache import PositionCache, position_layout
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.vision_language._config import VisionLanguageConfig
from transformer_core.models.vision_language._grid_tower import GridConnector, GridTower, GridVisionConfig
from transformer_core.models.vision_language._model import VisionLanguageLM

_EMBEDDINGS: Final = "embeddings"
_DEEP: Final = "deep_states"
_AXES: Final = 3  # time, row, column
PLACES: Final = _AXES + 1
"""Number of values behind an image token's embedding: its time, row and column, and how far the image advances."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class AnySizeConfig(VisionLanguageConfig):
    """Configuration of a decoder that sees images of any size, with a ``GridVisionConfig``."""

    @property
    def tower(self) -> GridVisionConfig:
        """``vision``."""
        assert isinstance(self.vision, GridVisionConfig)
        return self.vision


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class GridConfig(AnySizeConfig):
    """Configuration with positions by row and column; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        image_rope: RoPE by time, row and column; ``rope`` is that of texts alone, in which the three are equal.
    """

    image_rope: RopeConfig

    @property
    def embedding_values(self) -> int:
        """Number of values of an image token: its embedding, its place, and the states for the first layers."""
        return self.hidden * (1 + len(self.tower.deep_layers)) + PLACES


class DeepLayer(DecoderLayer):
    """Layer behind which states of images may be added to those of their tokens (DeepStack, arXiv:2406.04334)."""

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: Any, cache: Any = None, deep: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Runs the layer, then adds ``deep`` [B, T, D]."""
        x, cache = DecoderLayer.forward(self, ctx, x, step, cache)
        return (x if deep is None else ctx.ops.add(x, ctx.ops.cast(deep, x.dtype))), cache


class ImagePositions(Block, may_declare=False):
    """Replaces RoPE's tables by those of positions behind images, and keeps the positions.

    Args:
        config: the model.
        seeing: whether tokens of the call may be of images.
    """

    def __init__(self, config: GridConfig, *, seeing: bool) -> None:
        self.config, self.seeing = config, seeing

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the positions."""
        return position_layout(batch, capacity)

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        """Returns the embedded tokens x [B, T, D] as they are.

        Raises:
            ConfigError: keys and values are kept without their positions.
        """
        (x,) = values
        ctx, ops, cache, position = flow.ctx, flow.ctx.ops, flow.slot(self), flow.state.position
        if cache is None:
            return x  # texts alone, from the first token on
        if not isinstance(cache, PositionCache) or position is None:
            raise ConfigError(
                f"memory: {self.config.architecture} keeps positions of images beside keys and values: expected memory "
                f"none or caches; found {flow.profile.memory.value}"
            )
        batch, tokens = x.shape[:2]
        places = flow.step.places[None]
        begin = cache.begin(ctx, position, places, batch)
        advance = ops.broadcast(ops.constant(1.0, "f32"), (batch, tokens))
        offsets: list[Tensor] = []
        if self.seeing:
            is_image, columns = _image_columns(flow, self.config)
            offsets = [ops.select(is_image, column, ops.constant(0.0, "f32")) for column in columns[:_AXES]]
            advance = ops.select(is_image, columns[_AXES], advance)
        following = ops.add(ops.cumsum(advance, 1), begin)
        first = ops.sub(following, advance)
        axes = [ops.add(first, offset) for offset in offsets] or [first] * _AXES
        positions = ops.concat([ops.reshape(axis, (1, batch, tokens)) for axis in axes], 0)
        cos, sin = rope_tables(ctx, self.config.image_rope, positions)
        if not position.ndim and batch == 1:
            cos, sin = (ops.reshape(table, table.shape[1:]) for table in (cos, sin))
        flow.state.step = replace(flow.step, cos=cos, sin=sin)
        flow.fill(self, cache.updated(ctx, following, places))
        return x


class AnySizeLM(VisionLanguageLM):
    """Decoder that sees images of any size; as ``VisionLanguageLM``, but for the images.

    ``encode_image(pixel_values f32 [B,N,C*height*width], grid i32 [B,2])`` takes up to N patches of each image, square
    by square, and the image's rows and columns of patches. A family's tower takes both, and gives a list of states; its
    projector takes the list, and gives a list of embeddings, of which the first are the tokens'.
    """

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``, or of those of slots."""
        if profile.name != ENCODE_IMAGE:
            return super().entry_point(profile)
        config = self.config
        assert isinstance(config, AnySizeConfig)
        tower = config.tower
        patches = min(config.image_tokens, profile.capacity) * tower.merge**2
        pixels = TensorSpec((profile.batch, patches, tower.patch_values), "f32")
        grid = Argument("grid", TensorSpec((profile.batch, 2), "i32"), bounds=(tower.merge, patches // tower.merge))
        return EntryPoint(ENCODE_IMAGE, self.encode_sized, (Argument("pixel_values", pixels), grid))

    def embeddings_of(self, ctx: ExecutionContext, pixel_values: Tensor, grid: Tensor) -> list[Tensor]:
        """Returns what the projector gives, f32 [B, T, D] each."""
        tower, connector = self.vision_model, self.connector
        return [ctx.ops.cast(x, "f32") for x in connector(ctx, tower(ctx, pixel_values, grid))]

    def encode_sized(self, ctx: ExecutionContext, pixel_values: Tensor, grid: Tensor) -> Mapping[str, Tensor]:
        """Computes ``encode_image``."""
        return {"image_embeds": self.embeddings_of(ctx, pixel_values, grid)[0]}


class GridLM(AnySizeLM):
    """Decoder that sees images of any size, with positions by row and column; as ``AnySizeLM``, but for these.

    A row of its ``image_embeds`` has the token's embedding, its
    time, row and column, how far the image advances the positions (0 but for its last token), and the states for the
    decoder's first layers. ``prefill_embeddings`` takes such rows.
    """

    @classmethod
    def parts(cls, config: GridConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower and the mergers."""
        return GridTower(config.tower, dtype), GridConnector(config.tower, dtype)

    @property
    def _grid(self) -> GridConfig:
        config = self.config
        assert isinstance(config, GridConfig)
        return config

    def recipe(self) -> ModelFlow:
        """Returns the recipe of the entry points of texts."""
        return decoder_flow(self._grid, _positions(self._grid, seeing=False))

    def seeing_recipe(self) -> ModelFlow:
        """Returns the recipe of ``prefill_embeddings``."""
        config = self._grid
        deep = (_DEEP,) if config.tower.deep_layers else ()
        embedded = ModelFlow("images").custom("images", lambda flow, x: _placed(flow, x, config))
        return decoder_flow(config, embedded.then(_positions(config, seeing=True)), rows=deep)

    def encode_sized(self, ctx: ExecutionContext, pixel_values: Tensor, grid: Tensor) -> Mapping[str, Tensor]:
        """Computes ``encode_image``, with the tokens' places and the states for the first layers."""
        ops, merge = ctx.ops, self._grid.tower.merge
        embeds, *deep = self.embeddings_of(ctx, pixel_values, grid)
        batch, tokens, _ = embeds.shape
        height, width = (ops.quotient(ops.slice_axis(grid, 1, axis, axis + 1), merge) for axis in (0, 1))
        index = ops.broadcast(ops.iota((1, tokens), 1), (batch, tokens))
        is_last = ops.equal(index, ops.sub(ops.mul(height, width), 1))
        time = ops.broadcast(ops.constant(0, "i32"), (batch, tokens))
        advance = ops.select(is_last, ops.maximum(height, width), ops.constant(0, "i32"))
        places = [
            ops.reshape(ops.cast(column, "f32"), (batch, tokens, 1))
            for column in (time, ops.quotient(index, width), ops.rem(index, width), advance)
        ]
        return {"image_embeds": ops.concat([embeds, *places, *deep], 2)}


def _positions(config: GridConfig, *, seeing: bool) -> ModelFlow:
    return ModelFlow("positions").stage("image_positions", lambda build: ImagePositions(config, seeing=seeing))


def _given(flow: FlowContext, config: GridConfig) -> tuple[Tensor, Tensor]:
    """Returns bool [B, T, 1], true of tokens of images, and the rows f32 [B, T, W] for them."""
    given = flow.input(_EMBEDDINGS, ("B", "T", config.embedding_values), "f32").tensor
    ops, ids = flow.ctx.ops, flow.input("token_ids").tensor
    return ops.reshape(ops.equal(ids, config.image_token), (*ids.shape, 1)), given


def _placed(flow: FlowContext, x: FlowValue, config: GridConfig) -> FlowValue:
    """Puts images into their places, and keeps their states for the first layers, f32 [L, B, T, D]."""
    ops, hidden = flow.ctx.ops, config.hidden
    is_image, given = _given(flow, config)
    embeds = ops.cast(ops.slice_axis(given, 2, 0, hidden), x.dtype)
    if config.tower.deep_layers:
        zero = ops.constant(0.0, "f32")
        begins = [hidden * (1 + place) + PLACES for place in range(min(len(config.tower.deep_layers), config.layers))]
        states = [ops.select(is_image, ops.slice_axis(given, 2, begin, begin + hidden), zero) for begin in begins]
        states += [ops.broadcast(zero, states[0].shape)] * (config.layers - len(states))
        flow.keep(_DEEP, FlowValue.of(ops.concat([ops.reshape(state, (1, *state.shape)) for state in states], 0)))
    return flow.value(ops.select(is_image, embeds, x.tensor), x.spec)


def _image_columns(flow: FlowContext, config: GridConfig) -> tuple[Tensor, list[Tensor]]:
    """Returns bool [B, T], true of tokens of images, and the four values f32 [B, T] of their places."""
    ops, hidden = flow.ctx.ops, config.hidden
    is_image, given = _given(flow, config)
    shape = given.shape[:2]
    columns = [ops.slice_axis(given, 2, hidden + place, hidden + place + 1) for place in range(PLACES)]
    return ops.reshape(is_image, shape), [ops.reshape(column, shape) for column in columns]
