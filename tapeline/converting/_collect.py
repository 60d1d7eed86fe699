"""Importance matrices out of a text: squares of what each matrix is multiplied with, by the eager model."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import CachedWeights, Encoding, read_json
from tapeline.cli import Progress
from tapeline.converting._imatrix import Imatrix
from tapeline.exporting import ModelSource
from tapeline.quantizing import CHUNK, QuantizationPlan, collect_inputs, read_calibration
from transformer_core import CONFIG_FILE
from transformer_core.models import load_model, weights_of
from transformer_core.models.gguf import GgufModel, plan_gguf

_KEPT: Final = 4 << 30  # bytes of weights that stay in memory
_LAYERS: Final = "blk."


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
    ids = read_calibration(source.directory, text, tokens)
    model = load_model(source.directory, adapters=source.adapters)
    keys = {path: key for path, key in _whole_tensors(model, source).items() if key.startswith(_LAYERS)}
    weights = CachedWeights(weights_of(model, source.weights, source.adapters), _KEPT)
    inputs = collect_inputs(model, weights, [*keys], ids, progress)
    seen = {keys[path]: matrix for path, matrix in inputs.items() if matrix.count}
    counts = {key: np.array([matrix.count], np.float32) for key, matrix in seen.items()}
    sums = {key: matrix.sums[np.newaxis].astype(np.float32) for key, matrix in seen.items()}
    return Imatrix(sums, counts, math.ceil(len(ids) / CHUNK), CHUNK, (os.path.basename(text),))


def tensors_of_plan(source: ModelSource, plan: QuantizationPlan) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Returns encoding and importance of the tensors of a GGUF file, by key, for those of parameters.

    A tensor of several parameters has the encoding of most bits among theirs.

    Args:
        source: the model with its weights.
        plan: encodings by the paths of parameters.
    """
    model = load_model(source.directory, adapters=source.adapters)
    encodings: dict[str, Encoding] = {}
    for path, tensors in _stored(model, source).items():
        chosen = plan.encodings.get(path)
        if chosen is None:
            continue
        for key in tensors:
            both = chosen, encodings.get(key, chosen)
            encodings[key] = max(both, key=lambda encoding: encoding.block_bytes / encoding.block)
    whole = _whole_tensors(model, source)
    importance = {whole[path]: means for path, means in plan.importance.items() if path in whole}
    return {key: encoding.name for key, encoding in encodings.items()}, importance


def _stored(model: Any, source: ModelSource) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Returns the shapes of the tensors in a GGUF file that a parameter is made of, by path and key."""
    weights: Any = source.weights
    if isinstance(weights, GgufModel) and not source.adapters:
        recipes: Callable[..., Any] = weights.recipe_of(model.config)
        return {
            path: recipes(path, parameter.spec.shape, weights).stored() for path, parameter in model.named_parameters()
        }
    file = source.directory / CONFIG_FILE
    values: dict[str, Any] = read_json(file, "give the model's directory", nonfinite=True)
    return plan_gguf(model, values, str(file)).layout.stored


def _whole_tensors(model: Any, source: ModelSource) -> dict[str, str]:
    """Returns the key in a GGUF file of each matrix that is one whole tensor there, with the same inputs."""
    shapes = {path: parameter.spec.shape for path, parameter in model.named_parameters()}
    keys: dict[str, str] = {}
    for path, tensors in _stored(model, source).items():
        key, shape = next(iter(tensors.items()))
        if len(tensors) == 1 and len(shape) == len(shapes[path]) == 2 and shape[1] == shapes[path][1]:
            keys[path] = key
    return keys
