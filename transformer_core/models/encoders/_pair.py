"""Pairs of a vision model and a text model, which give vectors of one space."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec, f32
from transformer_core.family._model import Model, check_size
from transformer_core.flow import CompileProfile
from transformer_core.models.encoders._stack import EncoderConfig, encoder_profile
from transformer_core.models.encoders._vision import VisionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig(EncoderConfig):
    """Configuration of a pair; further attributes as of ``EncoderConfig``; ``stack`` is the text model's.

    Attributes:
        vision: configuration of the vision model.
        vocabulary: V.
        positions: the most tokens of a text.
    """

    vision: VisionConfig
    vocabulary: int
    positions: int

    @property
    def layers(self) -> int:
        """The greater L of text model and vision model."""
        return max(self.stack.layers, self.vision.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both the text and the vision model."""
        text = replace(self.stack, layers=min(count, self.stack.layers))
        return replace(self, stack=text, vision=self.vision.first_layers(min(count, self.vision.layers)))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        text = {"vocabulary": self.vocabulary, "positions": self.positions, **self.stack.facts()}
        return {**text, "layers": self.layers, "text_layers": self.stack.layers, "vision": self.vision.facts()}


class PairModel(Model[PairConfig]):
    """Vision model and text model with similar vectors for matching pairs.

    ``encode_image(pixel_values f32 [B,C,height,width])`` gives ``image_embeds`` [B,D], ``encode_text(token_ids [B,T])``
    gives ``text_embeds`` [B,D], all of length 1; ``score_pairs(image_embeds, text_embeds)`` compares them:
    ``logits_per_image`` [B,B]. ``forward(pixel_values, token_ids)`` gives both, and
    ``logits_per_image`` [B,B]: a row per image. Results are f32.
    """

    ENTRY_POINTS = ("forward", "encode_image", "encode_text", "score_pairs")
    DEFAULT_ENTRY_POINTS = ("encode_image", "encode_text", "score_pairs")

    @property
    @abstractmethod
    def vector_size(self) -> int:
        """D, the size of vectors."""

    @abstractmethod
    def image_vectors(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to vectors [B, D] of any length."""

    @abstractmethod
    def text_vectors(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Maps token_ids i32 [B, T] to vectors [B, D] of any length."""

    @abstractmethod
    def scored(self, ctx: ExecutionContext, alike: Tensor) -> Tensor:
        """Maps cosines f32 [B, B] to logits."""

    def encode_image(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to ``image_embeds`` f32 [B, D] of length 1."""
        return {"image_embeds": _of_length_one(ctx, self.image_vectors(ctx, pixel_values))}

    def encode_text(self, ctx: ExecutionContext, token_ids: Tensor) -> Mapping[str, Tensor]:
        """Maps token_ids i32 [B, T] to ``text_embeds`` f32 [B, D] of length 1."""
        return {"text_embeds": _of_length_one(ctx, self.text_vectors(ctx, token_ids))}

    def results(self, ctx: ExecutionContext, pixel_values: Tensor, token_ids: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of ``forward``: both ``.._embeds`` [B, D], and ``logits_per_image`` [B, B]."""
        images, texts = self.encode_image(ctx, pixel_values), self.encode_text(ctx, token_ids)
        return {**images, **texts, **self.score_pairs(ctx, images["image_embeds"], texts["text_embeds"])}

    def score_pairs(self, ctx: ExecutionContext, image_embeds: Tensor, text_embeds: Tensor) -> Mapping[str, Tensor]:
        """Maps vectors f32 [B, D] of length 1 to ``logits_per_image`` f32 [B, B]."""
        alike = ctx.ops.dot_general(image_embeds, text_embeds, ((1,), (1,)))
        return {"logits_per_image": self.scored(ctx, alike)}

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is the number of the text model's positions by default."""
        positions = self.config.positions
        tokens = positions if sequence is None else sequence
        check_size("batch", batch)
        check_size("sequence", tokens, positions, "the positions that have embeddings (max_position_embeddings)")
        return encoder_profile(batch, tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``."""
        vision = self.config.vision
        pixels = Argument("pixel_values", TensorSpec((profile.batch, vision.channels, *vision.image), "f32"))
        tokens = Argument("token_ids", TensorSpec((profile.batch, profile.sequence), "i32"))
        known: dict[str, tuple[Callable[..., Mapping[str, Tensor]], tuple[Argument, ...]]] = {
            "forward": (self.results, (pixels, tokens)),
            "encode_image": (self.encode_image, (pixels,)),
            "encode_text": (self.encode_text, (tokens,)),
            "score_pairs": (
                self.score_pairs,
                tuple(
                    Argument(name, TensorSpec((profile.batch, self.vector_size), "f32"))
                    for name in ("image_embeds", "text_embeds")
                ),
            ),
        }
        return EntryPoint(profile.name, *known[profile.name])


def _of_length_one(ctx: ExecutionContext, x: Tensor) -> Tensor:
    """Scales the rows of x [B, D] to length 1, in f32."""
    return ctx.ops.l2_norm(ctx.ops.cast(x, f32), 0.0)
