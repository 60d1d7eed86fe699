"""Golden encoders as models of ours: read from checkpoint files, as a user's would be."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lang_core import EagerExecutionContext, EntryPoint
from tests.goldens.encoders.cases import EncoderCase
from tests.goldens.encoders.files import write_encoder_checkpoint
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import Model, entry_points, load_model, weights_of


@contextmanager
def opened_encoder(case: EncoderCase, directory: Path) -> Iterator[tuple[Model[Any], EagerExecutionContext]]:
    """The case's model, and an eager context with its weights."""
    write_encoder_checkpoint(directory, case)
    with SafetensorsCheckpoint(directory) as weights:
        model = load_model(directory)
        yield model, EagerExecutionContext(weights_of(model, weights))


def forward_of(model: Model[Any], inputs: Mapping[str, np.ndarray]) -> EntryPoint:
    """``forward`` at the sizes of golden inputs."""
    ids = inputs.get("token_ids")
    batch = len(next(iter(inputs.values())))
    tokens = None if ids is None else ids.shape[1]
    if "lengths" in inputs:
        samples = inputs["input_values"].shape[1]
        tokens = next(frames for frames in range(1, samples) if model.config.samples(frames) == samples)
    return entry_points(model, names=("forward",), batch=batch, sequence=tokens)[0]
