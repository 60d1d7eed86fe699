"""Golden cases as models of ours: read from checkpoint files, as a user's would be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lang_core import EagerExecutionContext, EagerTensor, EntryPoint, Tensor
from tests.goldens.cases import GoldenCase
from tests.goldens.weights import write_checkpoint
from transformer_core import RopeScaling
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderLM, entry_points, load_config, weights_of


@contextmanager
def opened(
    case: GoldenCase, directory: Path, shards: int = 1, tag_sink: Callable[[str, EagerTensor], object] | None = None
) -> Iterator[tuple[DecoderLM, EagerExecutionContext]]:
    """The case's model, and an eager context with its weights."""
    write_checkpoint(directory, case, shards=shards)
    with SafetensorsCheckpoint(directory) as weights:
        model = DecoderLM(load_config(directory))
        yield model, EagerExecutionContext(weights_of(model, weights), tag_sink=tag_sink)


def prefill_and_decode(model: DecoderLM, case: GoldenCase) -> tuple[EntryPoint, EntryPoint]:
    """The entry points for the whole prompt at once, and room for every step."""
    batch, length = np.shape(case.prompt)
    sizes: Any = {"batch": batch, "sequence": length, "max_sequence": length + case.steps}
    prefill, decode = entry_points(model, names=("prefill", "decode"), **sizes)
    return prefill, decode


def empty_caches(entry: EntryPoint) -> list[np.ndarray]:
    """Zeros for every donated argument."""
    return [np.zeros(a.spec.shape, a.spec.dtype.numpy) for a in entry.arguments if a.alias_result]


def places(entry: EntryPoint, *values: int, length: int = 0) -> list[np.ndarray]:
    """Position, and last if there is one, and ``length`` if the entry point takes it: rank-0 i32 each."""
    takes_length = any(argument.name == "length" for argument in entry.arguments)
    return [scalar(value) for value in (*values, *([length] if takes_length else []))]


@dataclass(frozen=True)
class FixedScaling(RopeScaling):
    """Frequencies that another scaling has at one length, at every length."""

    inner: RopeScaling
    length: int

    @property
    def attention_factor(self) -> float:
        return self.inner.attention_factor

    def frequencies(self, base: float, rotated: int, length: int) -> np.ndarray:
        return self.inner.frequencies(base, rotated, self.length)

    def reach(self, trained: int) -> int | None:
        return self.inner.reach(trained)


def at_length(model: DecoderLM, length: int) -> DecoderLM:
    """The model with RoPE's frequencies of a length, which it then has at every length."""
    rope = model.config.rope
    fixed = replace(rope, scaling=FixedScaling(rope.scaling, length))
    return DecoderLM(replace(model.config, rope=fixed), model.dtype)


def scalar(value: int) -> np.ndarray:
    """A rank-0 i32."""
    return np.array(value, np.int32)


def relative_error(actual: Tensor | np.ndarray, expected: np.ndarray) -> float:
    """The greatest difference, relative to the greatest expected value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())
