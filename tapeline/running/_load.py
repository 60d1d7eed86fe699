"""Opens a bundle on a device."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.cli import Progress, no_progress
from tapeline.running._dump import DumpOptions, dumper_of
from tapeline.running._generator import Generator
from tapeline.running._loaded import LoadedModel
from tapeline.running._speculating import speculating


def load(
    bundle: Bundle | str | os.PathLike[str],
    *,
    device: str = "local-task",
    encoder_inputs: Mapping[str, np.ndarray | int] | None = None,
    prompt_cache: Path | None = None,
    speculate: str | None = None,
    draft: Path | None = None,
    draft_tokens: int | None = None,
    dump: DumpOptions | None = None,
    progress: Progress = no_progress,
) -> LoadedModel:
    """Opens a bundle on a device.

    Args:
        bundle: the bundle, or its directory.
        device: ``local-task`` (threads), ``local-sync`` (the calling thread), ``vmvx``, ``vulkan`` or ``cuda``.
        encoder_inputs: arguments of ``encode`` by name, for a model with an encoder.
        prompt_cache: file that keeps what a prompt left in the caches for the next run (docs/prompt-cache.md).
        speculate: ``prompt_lookup`` or ``prompt_lookup:N``: verifies what followed the last N tokens earlier in the
            text; ``mtp``: what the model's multi-token prediction head finds likeliest (docs/speculation.md).
        draft: bundle of a smaller model whose tokens are verified.
        draft_tokens: largest number of tokens that are verified at once; as many as score takes where None.
        dump: dumps the tensors of every call.
        progress: receives a summary of the dump.

    Returns:
        The model; use it in a ``with`` statement, or close it.

    Raises:
        InputError: the directory is no bundle, or was not compiled for the device; or options contradict each other.
        DeviceError: the device is absent, or a file is damaged.
    """
    opened = bundle if isinstance(bundle, Bundle) else Bundle(Path(bundle))
    if prompt_cache is not None and dump is not None:
        raise InputError("`dump` shows every call, and `prompt_cache` leaves some out: give one of them")
    with contextlib.ExitStack() as stack:
        dumper = stack.enter_context(dumper_of(opened, device, dump, progress))
        session = stack.enter_context(opened.session(device, dumper))
        speculation = stack.enter_context(speculating(opened, device, speculate, draft, draft_tokens))
        generator = Generator(
            opened, device, session, encoder_inputs=encoder_inputs, prompt_cache=prompt_cache, speculate=speculation
        )
        return LoadedModel(opened, device, session, stack.pop_all(), generator)
