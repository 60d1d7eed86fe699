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
    shape = next(iter(inputs.values())).shape
    sequence = shape[1] if len(shape) == 2 else None
    return entry_points(model, names=("forward",), batch=shape[0], sequence=sequence)[0]
