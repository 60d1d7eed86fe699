"""Inputs of the matrices of a decoder over a text: mean squares, and some rows as they are."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lang_core import EagerExecutionContext, Parameter, Tensor, WeightSource
from lang_core.ops import Op
from tapeline.cli import Progress, ProgressEvent

CHUNK: Final = 512
"""Tokens that are run at a time."""
_HEAD: Final = "lm_head.weight"
_HEAD_BIAS: Final = "lm_head.bias"


@dataclass(slots=True)
class MatrixInputs:
    """Inputs that a matrix was multiplied with.

    Attributes:
        sums: sums of squares, f64 [K].
        count: number of inputs; 0 if the matrix is read, and not by a linear layer.
        rows: some inputs as they are, f32 [n, K].
    """

    sums: np.ndarray
    count: int = 0
    rows: list[np.ndarray] = field(default_factory=list)

    @property
    def means(self) -> np.ndarray:
        """Mean squares, f32 [K]."""
        return (self.sums / max(1, self.count)).astype(np.float32)


class FewLogits(EagerExecutionContext):
    """Context that computes the logits of some tokens only.

    Args:
        weights: weights under the names of the model's parameters.
        head: path of the output projection.
        tokens: tokens, ascending; all if None.
    """

    def __init__(self, weights: WeightSource, head: str, tokens: np.ndarray | None) -> None:
        super().__init__(weights)
        self._head: Final = head
        self._tokens: Final = tokens
        self._matrix: Any = None

    def parameter(self, parameter: Parameter) -> Any:
        """Reads a weight; of the bias of the logits, some elements."""
        tensor = super().parameter(parameter)
        if parameter.path == self._head:
            self._matrix = tensor
        return self.constant(tensor.numpy()[self._tokens]) if self._few(parameter.path) else tensor

    def _few(self, path: str) -> bool:
        return self._tokens is not None and path == _HEAD_BIAS

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Computes an op; the product of the logits with some rows of the matrix."""
        if self._tokens is not None and op.name == "dot_general" and inputs[1] is self._matrix:
            inputs = inputs[0], self.constant(inputs[1].numpy()[self._tokens])
        return super().apply(op, inputs, attributes)


class ObservingContext(FewLogits):
    """Context that notes the inputs of matrices, and computes one logit.

    Args:
        weights: weights under the names of the model's parameters.
        head: path of the output projection.
        paths: paths of the matrices; others are left out.
        kept: number of inputs that are kept of each call, evenly spaced.
    """

    def __init__(self, weights: WeightSource, head: str, paths: Collection[str], kept: int = 0) -> None:
        super().__init__(weights, head, np.zeros(1, np.int64))
        self.inputs: Final[dict[str, MatrixInputs]] = {}
        self._paths: Final = paths
        self._kept: Final = kept
        self._last: tuple[Any, str] | None = None

    def parameter(self, parameter: Parameter) -> Any:
        """Reads a weight, and notes which it is: a product is with the matrix that was read last."""
        tensor = super().parameter(parameter)
        if parameter.path in self._paths:
            self._last = tensor, parameter.path
            if parameter.path not in self.inputs:
                self.inputs[parameter.path] = MatrixInputs(np.zeros(parameter.spec.shape[-1]))
        return tensor

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Computes an op; of a product with a matrix, notes the inputs."""
        last = self._last
        is_product = op.name == "dot_general" and last is not None and inputs[1] is last[0]
        if last is not None and is_product and attributes[:2] == ((inputs[0].ndim - 1,), (1,)):
            self._note(last[1], inputs[0].numpy())
        return super().apply(op, inputs, attributes)

    def _note(self, path: str, x: np.ndarray) -> None:
        rows = np.asarray(x, np.float32).reshape(-1, x.shape[-1])
        seen = self.inputs[path]
        seen.count += len(rows)
        seen.sums += np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        if self._kept:
            seen.rows.append(rows[:: max(1, len(rows) // self._kept)][: self._kept].copy())


def head_of(model: Any) -> str:
    """Returns the path of a decoder's output projection, or of the embedding that is used as such."""
    return next(iter(model.tied().values()), _HEAD)


def collect_inputs(
    model: Any,
    weights: WeightSource,
    paths: Collection[str],
    ids: list[int],
    progress: Progress,
    kept: int = 0,
) -> dict[str, MatrixInputs]:
    """Runs a decoder over tokens, 512 at a time, and returns the inputs of matrices that it read by path.

    Args:
        model: decoder, which is called with a context and tokens.
        weights: weights under the names of the model's parameters.
        paths: paths of the matrices.
        ids: tokens.
        progress: receives steps.
        kept: number of inputs that are kept as they are, per 512 tokens.
    """
    context = ObservingContext(weights, head_of(model), frozenset(paths), kept)
    chunks = math.ceil(len(ids) / CHUNK)
    for index in range(chunks):
        chunk: Any = np.array([ids[index * CHUNK : (index + 1) * CHUNK]], np.int32)
        model(context, chunk)
        progress(ProgressEvent("calibration", index + 1, chunks))
    return context.inputs
