"""Importance matrices out of a text: squares of what each matrix is multiplied with, by the eager model."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import CachedWeights, EagerExecutionContext, InputError, Parameter, WeightSource, read_json
from tapeline.cli import Progress, ProgressEvent
from tapeline.converting._imatrix import Imatrix
from tapeline.exporting import ModelSource
from tapeline.text import Tokenizer
from transformer_core import CONFIG_FILE
from transformer_core.models import load_model, weights_of
from transformer_core.models.gguf import GgufModel, plan_gguf

CHUNK: Final = 512
"""Tokens that are run at a time."""
_KEPT: Final = 4 << 30  # bytes of weights that stay in memory
_LAYERS: Final = "blk."
_LEAST: Final = 64  # tokens of a text


def collect_imatrix(source: ModelSource, text: Path, tokens: int, progress: Progress) -> Imatrix:
    """Returns the importance of the inputs of the matrices in a decoder's layers over a text.

    As in llama-imatrix, the output projection is left out; so are experts and matrices that a file has in another form.
    Weights are read one at a time; if they take more than 4 GiB, for each chunk anew.

    Args:
        source: the model with its weights.
        text: file of text, UTF-8.
        tokens: the most tokens that are taken of it.
        progress: receives steps.

    Raises:
        InputError: the text is too short or not UTF-8, or the model is not a decoder that GGUF holds.
    """
    assert source.weights is not None
    try:
        written = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"calibration={text}: cannot be read as text ({error}): give a file in UTF-8") from error
    ids = Tokenizer.load(source.directory).encode(written)[:tokens]
    if len(ids) < _LEAST:
        raise InputError(f"calibration={text}: has {len(ids)} tokens, expected {_LEAST} at least: give a longer text")
    model = load_model(source.directory, adapters=source.adapters)
    keys = _keys(model, source)
    weights = CachedWeights(weights_of(model, source.weights, source.adapters), _KEPT)
    context = _Collecting(weights, keys)
    chunks = math.ceil(len(ids) / CHUNK)
    for index in range(chunks):
        chunk: Any = np.array([ids[index * CHUNK : (index + 1) * CHUNK]], np.int32)
        model(context, chunk)
        progress(ProgressEvent("calibration", index + 1, chunks))
    counts = {key: np.array([count], np.float32) for key, count in context.counts.items()}
    sums = {key: values[np.newaxis].astype(np.float32) for key, values in context.sums.items()}
    return Imatrix(sums, counts, chunks, CHUNK, (os.path.basename(text),))


def _keys(model: Any, source: ModelSource) -> dict[str, tuple[str, int]]:
    """Returns the key in a GGUF file, and the number of inputs, of each matrix that is one whole tensor there."""
    weights: Any = source.weights
    if isinstance(weights, GgufModel) and not source.adapters:
        recipes: Callable[..., Any] = weights.recipe_of(model.config)
        stored = {
            path: recipes(path, parameter.spec.shape, weights).stored() for path, parameter in model.named_parameters()
        }
    else:
        file = source.directory / CONFIG_FILE
        values: dict[str, Any] = read_json(file, "give the model's directory", nonfinite=True)
        stored = plan_gguf(model, values, str(file)).layout.stored
    shapes = {path: parameter.spec.shape for path, parameter in model.named_parameters()}
    keys: dict[str, tuple[str, int]] = {}
    for path, tensors in stored.items():
        key, shape = next(iter(tensors.items()))
        if (
            key.startswith(_LAYERS)
            and len(tensors) == 1
            and len(shape) == len(shapes[path]) == 2
            and shape[1] == shapes[path][1]
        ):
            keys[path] = key, shape[1]
    return keys


class _Collecting(EagerExecutionContext):
    """Context that adds up the squares of the inputs of linear layers.

    Args:
        weights: weights under the names of the model's parameters.
        keys: key and number of inputs by path; other matrices are left out.
    """

    def __init__(self, weights: WeightSource, keys: Mapping[str, tuple[str, int]]) -> None:
        super().__init__(weights)
        self.sums: Final[dict[str, np.ndarray]] = {}
        self.counts: Final[dict[str, int]] = {}
        self._keys: Final = keys
        self._last: tuple[Any, str] | None = None

    def parameter(self, parameter: Parameter) -> Any:
        """Reads a weight, and notes which it is: a linear layer multiplies with the matrix that it read."""
        tensor = super().parameter(parameter)
        if parameter.path in self._keys:
            self._last = tensor, parameter.path
        return tensor

    def composite(self, name: str, body: Any, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> Any:
        """Computes a composite; of a linear layer, adds up the squares of its inputs."""
        if name == "linear" and self._last is not None and inputs[1] is self._last[0]:
            key, size = self._keys[self._last[1]]
            rows = np.asarray(inputs[0].numpy(), np.float32).reshape(-1, size)
            fused = self.counts.get(key, 0), self.sums.get(key, np.zeros(size))
            self.counts[key] = fused[0] + len(rows)
            self.sums[key] = fused[1] + np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        return super().composite(name, body, inputs, attributes)
