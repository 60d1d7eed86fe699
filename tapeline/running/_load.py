"""Opens a bundle on a device."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lang_core import InputError, MeshShape, checked_choices
from tapeline.backends import Place, open_session
from tapeline.bundle import VERIFY, Bundle, Verify
from tapeline.cli import Progress, no_progress
from tapeline.runners import SLOTS, OneRowSource, SlotSource, takes_texts
from tapeline.running._dump import DumpOptions, dumper_of
from tapeline.running._loaded import LoadedModel
from tapeline.running._prompt_cache import PromptCacheFile
from tapeline.running._row_drafts import row_drafting
from tapeline.running._row_generator import RowGenerator
from tapeline.running._speculating import speculating
from tapeline.running._text_to_text import TextToText


@checked_choices
def load(
    bundle: Bundle | str | os.PathLike[str],
    *,
    device: str | None = None,
    engine: str = "iree",
    mesh: MeshShape | str | None = None,
    checkpoint: Path | None = None,
    encoder_inputs: Mapping[str, np.ndarray | int] | None = None,
    prompt_cache: Path | None = None,
    speculate: str | None = None,
    draft: Path | None = None,
    draft_tokens: int | None = None,
    dump: DumpOptions | None = None,
    verify: Verify = VERIFY[0],
    trust_compiled: bool = False,
    progress: Progress = no_progress,
) -> LoadedModel:
    """Opens a bundle on a device.

    Args:
        bundle: the bundle, or its directory.
        device: of IREE ``local-task`` (threads, the default), ``local-sync`` (the calling thread), ``vmvx``, ``vulkan``
            or ``cuda``; of JAX ``cpu``, ``cuda``, ``rocm`` or ``tpu``, by default JAX's choice.
        engine: ``iree``; ``jax``, by which XLA compiles the bundle when it is called (docs/jax.md); or an engine that a
            package of yours registered (docs/extending.md).
        mesh: axes of devices over which JAX cuts the bundle, such as ``tp=2``; one device if None.
        checkpoint: directory of the model's safetensors, with JAX and a bundle that was exported with weights=none;
            None searches: ``checkpoint`` in the bundle, or the directory that the bundle lies in.
        encoder_inputs: arguments of ``encode`` by name, of its specs' shapes, for a model with an encoder: prompts are
            then beginnings of answers. None for encoder-decoders of texts, which encode each prompt.
        prompt_cache: file with the KV cache of a prompt for later runs (docs/prompt-cache.md).
        speculate: ``prompt_lookup`` or ``prompt_lookup:N``: proposes the tokens that followed the last N tokens earlier
            in the text; ``mtp``: proposes tokens with the model's multi-token prediction head (docs/speculation.md).
        draft: draft-model bundle for speculative decoding.
        draft_tokens: largest number of tokens that are verified at once; as many as score takes if None.
        dump: dumps the tensors of every call.
        verify: when the weights are compared with their hash. ``background``: while the model runs, if they have
            changed since the last time; a difference ends the answer, or is raised when the model is closed. ``full``:
            before this function returns. ``sizes``: only their sizes. ``off``: only modules are compared. Otherwise the
            tokenizer, templates and settings are compared before they are used.
        trust_compiled: True runs a compiled module that this user did not compile, which is native code; False compiles
            ``module.mlir`` in its place.
        progress: receives a summary of the dump.

    Returns:
        The model; use it in a ``with`` statement, or close it.

    Raises:
        InputError: the directory is not a bundle, or was not compiled for the device; or options contradict each other.
        DeviceError: the device is absent, or a file is damaged.
        DescriptionError: a file is not the one that was exported.
    """
    opened = bundle if isinstance(bundle, Bundle) else Bundle(Path(bundle))
    place = Place(
        engine, device, MeshShape.parse(mesh) if isinstance(mesh, str) else mesh, checkpoint, verify, trust_compiled
    )
    if prompt_cache is not None and dump is not None:
        raise InputError("`dump` shows every call, and `prompt_cache` leaves some out: give one of them")
    with contextlib.ExitStack() as stack:
        dumper = stack.enter_context(dumper_of(opened, place, dump, progress))
        session = stack.enter_context(open_session(opened, place, dumper))
        cache = None if prompt_cache is None else PromptCacheFile(prompt_cache, opened, session.module.name)
        drafts = speculate is not None or draft is not None
        if SLOTS in opened.config.model:
            source = SlotSource(opened, session)
            drafting = stack.enter_context(row_drafting(opened, place, speculate, draft, draft_tokens))
        else:
            source = OneRowSource(opened, session, encoder_inputs, drafts=drafts)
            drafting = stack.enter_context(speculating(opened, place, speculate, draft, draft_tokens, source.opened))
        generator = RowGenerator(opened, source, drafting, cache)
        translator = TextToText(opened, session) if takes_texts(opened) and encoder_inputs is None else None
        if translator is not None and prompt_cache is not None:
            raise InputError("`prompt_cache` keeps the tokens of a decoder's prompt: leave it out")
        return LoadedModel(opened, session, stack.pop_all(), generator, progress, translator)
