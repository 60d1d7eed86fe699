"""Decoders that see pictures: a vision tower, a projection into the decoder's embeddings, the decoder."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lang_core import Argument, ConfigError, DType, EntryPoint, ExecutionContext, Module, Tensor, TensorSpec, f32
from transformer_core._names import ENCODE_IMAGE, PREFILL_EMBEDDINGS, PREFILL_EMBEDDINGS_ROW
from transformer_core.family._decoder import DecoderLM, decoder_flow
from transformer_core.family._model import DEFAULT_SEQUENCE
from transformer_core.flow import CompileProfile, FlowContext, FlowValue, ModelFlow
from transformer_core.models.vision_language._config import VisionLanguageConfig
from transformer_core.models.vision_language._whole_pictures import with_pictures

_PREFILL_ROW: Final = "prefill_row"
_EMBEDDINGS: Final = "embeddings"


class VisionLanguageLM(DecoderLM):
    """Decoder that sees pictures; as ``DecoderLM``, with two further entry points. A family says its two ``parts``.

    ``encode_image(pixel_values f32 [B,C,height,width])`` gives ``image_embeds`` f32 [B,T',D], the decoder's input for
    each image or tile.

    ``prefill_embeddings(token_ids [B,T], embeddings f32 [B,T,D], position, last, caches)`` is as prefill, but the image
    tokens among ``token_ids`` have these embeddings; other rows of ``embeddings`` are not read.

    With ``slots=N``, ``prefill_embeddings_row(token_ids [1,T], embeddings f32 [1,T,D], row, position, last, caches)``
    is to ``prefill_row`` what that is to prefill, in the same sizes (``prefill_embeddings_row_32``).
    """

    ENTRY_POINTS = (*DecoderLM.ENTRY_POINTS, ENCODE_IMAGE, PREFILL_EMBEDDINGS)
    DEFAULT_ENTRY_POINTS = (ENCODE_IMAGE, PREFILL_EMBEDDINGS, "prefill", "decode")

    def __init__(self, config: VisionLanguageConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        whole = self.config  # with the layers that are run
        assert isinstance(whole, VisionLanguageConfig)
        self._whole: Final = whole
        self.vision_model, self.connector = self.parts(whole, self.dtype)
        self._seeing: Final = self.seeing_recipe()

    def seeing_recipe(self) -> ModelFlow:
        """Returns the recipe of ``prefill_embeddings``."""
        return decoder_flow(self.config, _pictures(self._whole))

    @classmethod
    @abstractmethod
    def parts(cls, config: Any, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower, from pixels [B, C, height, width] to states, and the projector from these to [B, T', D]."""

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile as of ``DecoderLM``; by default T has room for a picture that runs in one call."""
        if sequence is None and self._whole.image_whole:
            sequence = max(DEFAULT_SEQUENCE, self._whole.image_tokens)
        return super().default_profile(batch, sequence, max_sequence)

    def _check_room(self, tokens: int) -> None:
        """Checks that the tokens of a picture run in one call, if they have to."""
        needed = self._whole.image_tokens
        if self._whole.image_whole and tokens < needed:
            raise ConfigError(
                f"sequence: the {needed} tokens of a picture see each other, and run in one call; found {tokens}: "
                f"raise it to {needed}, or leave out the entry points of pictures"
            )

    def profile(
        self, name: str, sizes: CompileProfile, *, positions: str, window_caches: str, verify_tokens: int | None
    ) -> CompileProfile:
        """Returns the profile of an entry point; that of ``prefill_embeddings`` is prefill's.

        Raises:
            ConfigError: a picture that runs in one call has more tokens than the call.
        """
        if name == ENCODE_IMAGE:
            return replace(sizes, name=name)
        known = "prefill" if name == PREFILL_EMBEDDINGS else name
        if name == PREFILL_EMBEDDINGS:
            self._check_room(sizes.sequence)
        profile = super().profile(
            known, sizes, positions=positions, window_caches=window_caches, verify_tokens=verify_tokens
        )
        return replace(profile, name=name)

    def slot_profiles(
        self, slots: int, sizes: CompileProfile, *, window_caches: str, verify_tokens: int | None
    ) -> tuple[CompileProfile, ...]:
        """Returns the profiles of a decoder's slots, and those that pictures need.

        Raises:
            ConfigError: as for ``profile``.
        """
        profiles = super().slot_profiles(slots, sizes, window_caches=window_caches, verify_tokens=verify_tokens)
        self._check_room(sizes.sequence)
        seeing = [
            replace(profile, name=profile.name.replace(_PREFILL_ROW, PREFILL_EMBEDDINGS_ROW))
            for profile in profiles
            if profile.name.startswith(_PREFILL_ROW)
        ]
        return *profiles, *seeing, replace(sizes, name=ENCODE_IMAGE)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``, or of those of slots."""
        if profile.name == ENCODE_IMAGE:
            spec = TensorSpec((profile.batch, self._whole.vision.channels, *self._whole.vision.image), "f32")
            return EntryPoint(ENCODE_IMAGE, self._encode, (Argument("pixel_values", spec),))
        if profile.name.startswith(PREFILL_EMBEDDINGS):
            return self.built(self._seeing, profile)
        return super().entry_point(profile)

    def _encode(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        tokens = self.connector(ctx, self.vision_model(ctx, pixel_values))
        return {"image_embeds": ctx.ops.cast(tokens, f32)}


def _pictures(config: VisionLanguageConfig) -> ModelFlow:
    """Returns the stage after the embedding of tokens that puts pictures into their places."""

    def placed(flow: FlowContext, x: FlowValue) -> FlowValue:
        given = flow.input(_EMBEDDINGS, ("B", "T", config.hidden), "f32")
        ops, ids = flow.ctx.ops, flow.input("token_ids").tensor
        is_image = ops.reshape(ops.equal(ids, config.image_token), (*ids.shape, 1))
        if config.image_whole:
            flow.state.step = with_pictures(flow.ctx, flow.step, ids, config.image_token, flow.state.position)
        embeds = ops.cast(given.tensor, x.dtype)
        if config.scaled_images and config.embedding_scale != 1.0:
            embeds = ops.mul(embeds, config.embedding_scale)
        return flow.value(ops.select(is_image, embeds, x.tensor), x.spec)

    return ModelFlow("pictures").custom("pictures", placed)
