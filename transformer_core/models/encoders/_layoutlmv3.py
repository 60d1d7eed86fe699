"""LayoutLMv3 (Huang et al. 2022, arXiv:2204.08387): a RoBERTa of words in boxes on a page, without its picture.

Results are those of transformers without ``pixel_values``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core import (
    Argument,
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Parameter,
    Tensor,
    TensorSpec,
    WeightSource,
    checked_choices,
    f32,
)
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules, Transposed
from transformer_core.family._model import ModelFamily
from transformer_core.family._sentence import first_state
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import padding_bias, token_distances
from transformer_core.layers._relative_bias import distance_buckets
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._roberta import positions_after_padding
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import Embeddings, TextConfig, TextModel

_EDGES: Final = 1024  # widths and heights are cut to the last number below
_FEWEST_OF_HEAD: Final = 10  # classes of tokens from which on a head of two matrices tells them apart


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutConfig(TextConfig):
    """Configuration; further attributes as of ``TextConfig``.

    Attributes:
        coordinates: number of embeddings of a coordinate.
        coordinate_size: size of the embedding of a coordinate.
        shape_size: size of the embeddings of width and height.
        distances: buckets of the distances of words in the text, and the one from which on all share the last; None
            without biases by these distances.
        places: the same of distances on the page.
    """

    coordinates: int
    coordinate_size: int
    shape_size: int
    distances: tuple[int, int] | None
    places: tuple[int, int] | None


class LayoutEmbeddings(Embeddings):
    """Sum of the embeddings of token, position, type and box, and its norm."""

    def __init__(self, config: LayoutConfig, dtype: DType) -> None:
        super().__init__(config, dtype)
        self.x = Embedding(config.coordinates, config.coordinate_size, dtype=dtype)
        self.y = Embedding(config.coordinates, config.coordinate_size, dtype=dtype)
        self.height = Embedding(config.coordinates, config.shape_size, dtype=dtype)
        self.width = Embedding(config.coordinates, config.shape_size, dtype=dtype)

    def boxed(self, ctx: ExecutionContext, token_ids: Tensor, boxes: Tensor, types: Tensor | None) -> Tensor:
        """Embeds token_ids and types i32 [B, T] with boxes i32 [B, T, 4] as [B, T, D]."""
        ops = ctx.ops
        left, top, right, bottom = _sides(ctx, boxes)
        height = ops.clamp(ops.sub(bottom, top), 0, _EDGES - 1)
        width = ops.clamp(ops.sub(right, left), 0, _EDGES - 1)
        named = (self.x, left), (self.y, top), (self.x, right), (self.y, bottom), (self.height, height)
        parts = [table(ctx, places) for table, places in (*named, (self.width, width))]
        assert self.norm is not None  # its configuration has one
        return self.norm(ctx, ops.add(self.summed(ctx, token_ids, types), ops.concat(parts, 2)))


def _sides(ctx: ExecutionContext, boxes: Tensor) -> list[Tensor]:
    """Returns left, top, right and bottom i32 [B, T] of boxes i32 [B, T, 4]."""
    return [ctx.ops.reshape(side, boxes.shape[:2]) for side in ctx.ops.split(boxes, (1, 1, 1, 1), 2)]


class _DistanceBias(Module):
    """Bias of each head for each bucket of distances."""

    def __init__(self, heads: int, buckets: tuple[int, int], dtype: DType) -> None:
        self.weight = Parameter((buckets[0], heads), dtype)
        self._buckets = buckets

    def forward(self, ctx: ExecutionContext, distances: Tensor, greatest: int) -> Tensor:
        """Returns biases f32 [B, N, 1, T, T] of distances i32 [B, T, T] of keys from queries, up to ``greatest``."""
        ops, (batch, tokens, _) = ctx.ops, distances.shape
        rows = distance_buckets(np.arange(-greatest, greatest + 1), *self._buckets)
        biases = ops.take(ops.cast(ctx.parameter(self.weight), f32), ops.constant(rows))
        places = ops.clamp(ops.add(distances, greatest), 0, 2 * greatest)
        heads = self.weight.spec.shape[1]
        return ops.reshape(ops.transpose(ops.take(biases, places), (0, 3, 1, 2)), (batch, heads, 1, tokens, tokens))


class _LayoutHead(Module):
    """Two matrices with a tanh between them."""

    def __init__(self, hidden: int, outputs: int, dtype: DType) -> None:
        self.dense = Linear(hidden, hidden, bias=True, dtype=dtype)
        self.out_proj = Linear(hidden, outputs, bias=True, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        return self.out_proj(ctx, ctx.ops.tanh(self.dense(ctx, x)))


class LayoutModel(TextModel):
    """Encoder of words in boxes, with or without a head.

    ``forward(token_ids [B,T], attention_mask [B,T], bbox [B,T,4], token_type_ids [B,T])``, all i32, gives
    ``last_hidden_state`` f32 [B,T,D], or the results of the head, as of ``TextModel`` and the models on it. Boxes are
    left, top, right and bottom, from 0 to ``max_2d_position_embeddings`` - 1.
    """

    def __init__(self, config: LayoutConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        hidden, heads, self._coordinates = config.stack.hidden, config.stack.heads, config.coordinates
        self.embeddings = LayoutEmbeddings(config, self.dtype)
        self.distance = None if config.distances is None else _DistanceBias(heads, config.distances, self.dtype)
        self.across = None if config.places is None else _DistanceBias(heads, config.places, self.dtype)
        self.down = None if config.places is None else _DistanceBias(heads, config.places, self.dtype)
        count = config.labels or config.token_labels or (2 if config.answers else 0)
        plain = 0 < config.token_labels < _FEWEST_OF_HEAD
        self.classifier = Linear(hidden, count, bias=True, dtype=self.dtype) if plain else None
        self.head = _LayoutHead(hidden, count, self.dtype) if count and not plain else None

    def results(  # pyright: ignore[reportIncompatibleMethodOverride] -- boxes are an argument
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        bbox: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes the results of ``forward``."""
        ops, shape = ctx.ops, token_ids.shape
        x = self.embeddings.boxed(ctx, token_ids, bbox, token_type_ids)
        x = self.encoder(ctx, x, ops.add(self._biases(ctx, bbox), padding_bias(ctx, attention_mask)))
        if self.config.labels:
            x = first_state(ctx, x)
        head = self.head or self.classifier
        states = ops.cast(x if head is None else head(ctx, x), f32)
        if not self.config.answers:
            return {"last_hidden_state" if head is None else "logits": states}
        start, end = ops.split(states, (1, 1), 2)
        return {"start_logits": ops.reshape(start, shape), "end_logits": ops.reshape(end, shape)}

    def _biases(self, ctx: ExecutionContext, boxes: Tensor) -> Tensor:
        """Returns the biases by distances, broadcast to f32 [B, N, 1, T, T], of boxes i32 [B, T, 4]."""
        ops, (batch, tokens, _) = ctx.ops, boxes.shape
        total: Tensor = ops.constant(np.zeros((1, 1, 1, 1, 1), np.float32))
        if self.distance is not None:
            apart = ops.reshape(token_distances(ctx, tokens), (1, tokens, tokens))
            total = ops.add(total, self.distance(ctx, apart, tokens))
        left, _, _, bottom = _sides(ctx, boxes)
        for table, side in ((self.across, left), (self.down, bottom)):
            if table is not None:
                apart = ops.sub(ops.reshape(side, (batch, 1, tokens)), ops.reshape(side, (batch, tokens, 1)))
                total = ops.add(total, table(ctx, apart, self._coordinates))
        head_size = self.config.stack.hidden // self.config.stack.heads
        return ops.mul(total, 1 / head_size**0.5)

    def packed_lengths(self, longest: int) -> tuple[int, ...]:
        """Returns none: every token has a box."""
        return ()

    def text_lengths(self, limit: int | None) -> tuple[int, ...]:
        """Returns none: documents have words in boxes, and are no texts."""
        return ()

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        ids = TensorSpec((profile.batch, profile.sequence), "i32")
        boxes = TensorSpec((profile.batch, profile.sequence, 4), "i32")
        names = [*self.config.inputs]
        names.insert(2, "bbox")

        def run(ctx: ExecutionContext, *tensors: Any) -> Mapping[str, Tensor]:
            return self.results(ctx, **dict(zip(names, tensors, strict=True)))

        return EntryPoint(profile.name, run, tuple(Argument(name, boxes if name == "bbox" else ids) for name in names))


_TABLES: Final = {"distance.weight": "rel_pos_bias", "across.weight": "rel_pos_x_bias", "down.weight": "rel_pos_y_bias"}


def _stored(head: str) -> RecipeOf:
    keys = RenamedModules(
        {
            **BERT_NAMES,
            **{f"embeddings.{side}": f"embeddings.{side}_position_embeddings" for side in "xy"},
            "embeddings.height": "embeddings.h_position_embeddings",
            "embeddings.width": "embeddings.w_position_embeddings",
            "head.dense": f"{head}.dense",
            "head.out_proj": f"{head}.out_proj",
            **{name: f"encoder.{stored}.weight" for name, stored in _TABLES.items()},
        },
        above=("layoutlmv3.",),
    )

    def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name not in _TABLES:
            return keys(name, shape, source)
        return Transposed(keys.key(name, source), (shape[1], shape[0]), 0, shape[0])

    return recipe


_PICTURE: Final = tuple(
    f"{above}{name}"
    for above in ("", "layoutlmv3.")
    for name in ("patch_embed.*", "cls_token", "pos_embed", "LayerNorm.*", "norm.*", "visual_bbox")
)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> LayoutConfig:
    if not fields.boolean("text_embed", True):
        fields.refuse("text_embed", "true, or no such field: pages without words are not supported")
    stack = read_post_norm_stack(fields, norm_eps=fields.number("layer_norm_eps", 1e-5))
    sizes = fields.integer("coordinate_size", 128), fields.integer("shape_size", 128)
    if 4 * sizes[0] + 2 * sizes[1] != stack.hidden:
        fields.refuse("coordinate_size", f"four and two of shape_size ({sizes[1]}) to be hidden_size ({stack.hidden})")
    coordinates = fields.integer("max_2d_position_embeddings", _EDGES)
    near, far = fields.boolean("has_relative_attention_bias", True), fields.boolean("has_spatial_attention_bias", True)
    text = read_bert(
        fields,
        architecture,
        stack=stack,
        **positions_after_padding(fields, fields.integer("pad_token_id", 1, minimum=0)),
    )
    values = {name: getattr(text, name) for name in TextConfig.__dataclass_fields__}
    return LayoutConfig(
        **{**values, **known},
        coordinates=coordinates,
        coordinate_size=sizes[0],
        shape_size=sizes[1],
        distances=(fields.integer("rel_pos_bins", 32), fields.integer("max_rel_pos", 128)) if near else None,
        # Without biases by the distance in the text, transformers adds none at all.
        places=(fields.integer("rel_2d_pos_bins", 64), fields.integer("max_rel_2d_pos", 256)) if near and far else None,
    )


def _family(kind: str, head: str, known: Callable[[ConfigFields], dict[str, Any]]) -> ModelFamily[Any]:
    name, stored = f"LayoutLMv3{kind}", _stored(head)

    make: Any = LayoutModel

    def read(fields: ConfigFields) -> LayoutConfig:
        return _read(fields, name, **known(fields))

    return ModelFamily(name, "layoutlmv3", read, make, lambda config: stored, ANY_LAYER, ("*position_ids", *_PICTURE))


LAYOUTLMV3: Final = (
    _family("Model", "classifier", lambda fields: {}),
    _family("ForSequenceClassification", "classifier", lambda fields: {"labels": labels_of(fields)}),
    _family("ForTokenClassification", "classifier", lambda fields: {"token_labels": labels_of(fields)}),
    _family("ForQuestionAnswering", "qa_outputs", lambda fields: {"answers": True}),
)
