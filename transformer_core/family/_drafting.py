"""Decoders with their multi-token prediction head, which drafts."""

from dataclasses import replace
from typing import Any, Final

from lang_core import ConfigError, DType, EntryPoint, ExecutionContext, Tensor
from transformer_core._names import DRAFT, NEXT_IDS
from transformer_core.family._config import DecoderConfig
from transformer_core.family._decoder import DecoderLM, begin, decoder_flow, head
from transformer_core.family._mtp import MtpHead
from transformer_core.flow import CompileProfile, ModelFlow

_LOGITS: Final = "logits"
_HEAD: Final = "mtp"
_EMBEDDED: Final = "embedded"


class DraftingLM(DecoderLM):
    """Decoder with its multi-token prediction head; otherwise as ``DecoderLM``.

    Every entry point with caches has ``mtp.*`` among them. ``draft(token_ids [B,1], position, caches)`` takes the last
    token, which the model has not been fed, at its ``position`` of 1 or more, and gives the logits [B,V] and
    ``next_ids`` of a guess of the one after it. A further call, with the guess and the next position, guesses one
    further. Of the caches it changes those of the head alone.

    Raises:
        ConfigError: as for ``DecoderLM``; or checkpoints of the model have zero or several such heads, or layers are
            left out.
    """

    ENTRY_POINTS = (*DecoderLM.ENTRY_POINTS, DRAFT)

    def __init__(self, config: DecoderConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        if config.prediction_heads != 1:
            raise ConfigError(
                f"{DRAFT}: {config.architecture} needs one multi-token prediction head in its checkpoint; its "
                f"configuration has {config.prediction_heads}: export without {DRAFT}"
            )
        if num_layers not in (None, config.layers):
            raise ConfigError(
                f"num_layers: expected {config.layers}, all of them, for the multi-token prediction head follows the "
                f"last; found {num_layers}: export without {DRAFT}"
            )
        super().__init__(config, dtype, num_layers)
        self._drafts = _draft_flow(self.config)

    def recipe(self) -> ModelFlow:
        """Returns the recipe of the entry points that feed tokens to the model."""
        return _filling_flow(self.config)

    def profile(
        self, name: str, sizes: CompileProfile, *, positions: str, window_caches: str, verify_tokens: int | None
    ) -> CompileProfile:
        """Returns the profile of an entry point; positions that are not shared are a ConfigError."""
        if positions != "shared":
            raise ConfigError(f"positions: expected shared, for {DRAFT} works on one prompt; found {positions}")
        options: Any = {"positions": positions, "window_caches": window_caches, "verify_tokens": verify_tokens}
        if name != DRAFT:
            return super().profile(name, sizes, **options)
        return replace(super().profile("decode", sizes, **options), name=DRAFT)

    def slot_profiles(
        self, slots: int, sizes: CompileProfile, *, window_caches: str, verify_tokens: int | None
    ) -> tuple[CompileProfile, ...]:
        """Refuses slots by a ConfigError."""
        del sizes, window_caches, verify_tokens
        raise ConfigError(f"slots: expected none with {DRAFT}, which works on one prompt; found {slots}")

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds an entry point; that of ``draft`` passes the model's own caches on as they are."""
        whole = super().entry_point(profile)
        if profile.name != DRAFT:
            return whole
        drafting = self.built(self._drafts, profile)
        caches = [argument for argument in whole.arguments if argument.alias_result is not None]
        inputs = [argument for argument in whole.arguments if argument.alias_result is None]
        own = [argument.name for argument in drafting.arguments if argument.alias_result is not None]

        def drafted(ctx: ExecutionContext, *tensors: Tensor) -> dict[str, Tensor]:
            given = dict(zip([cache.name for cache in caches], tensors[len(inputs) :], strict=True))
            results = dict(drafting(ctx, *tensors[: len(inputs)], *[given[name] for name in own]))
            return {_LOGITS: results[_LOGITS], **given, **results, NEXT_IDS: results[NEXT_IDS]}

        return EntryPoint(DRAFT, drafted, whole.arguments)


def _filling_flow(config: DecoderConfig) -> ModelFlow:
    """Returns the recipe of the decoder; behind the final norm the head fills its caches."""
    filled = ModelFlow(_HEAD).stage(_HEAD, lambda build: MtpHead(config, build.dtype), reads=(_EMBEDDED,))
    whole = replace(config, windows=(*config.windows, None))
    return decoder_flow(whole, ModelFlow("kept").keep(_EMBEDDED), filled)


def _draft_flow(config: DecoderConfig) -> ModelFlow:
    """Returns the recipe of ``draft``: the embedding, the head, the output projection."""
    embedding = ModelFlow("decoder").token_embed(config.vocabulary, config.hidden, scale=config.embedding_scale)
    return (
        begin(replace(config, windows=(None,)))
        .include("model", embedding)
        .stage(_HEAD, lambda build: MtpHead(config, build.dtype, drafts=True))
        .last_token()
        .then(head(config))
    )
