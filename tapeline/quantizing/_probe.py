"""Measurement of loss: a matrix of a decoder is disturbed, and the change of the logits is the loss that this costs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import EagerExecutionContext, Module, TensorSpec, WeightSource
from tapeline.quantizing._inputs import FewLogits, head_of

_LAYER: Final = re.compile(r"model\.layers\.(\d+)")
_LIKELIEST: Final = 64  # tokens per position that losses of single matrices are measured on
_SAME: Final = 1e-3


def layer_of(path: str) -> int | None:
    """Returns the number of the layer that a parameter is in; None outside of layers.

    >>> layer_of("model.layers.3.mlp.up_proj.weight"), layer_of("lm_head.weight")
    (3, None)
    """
    match = _LAYER.match(path)
    return None if match is None else int(match[1])


class ReplacedWeights:
    """Weights in f32 with some of them replaced. Implements ``lang_core.WeightSource``.

    Args:
        source: weights under the names of the model's parameters, unpacked.
        replaced: weights in place of the source's; changes of the mapping count.
    """

    def __init__(self, source: WeightSource, replaced: Mapping[str, np.ndarray]) -> None:
        self._source: Final = source
        self._replaced: Final = replaced

    def keys(self) -> Iterator[str]:
        """Yields the source's keys."""
        return self._source.keys()

    def has(self, key: str) -> bool:
        """Returns whether the source has a key."""
        return self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the spec in f32."""
        return TensorSpec(self._source.spec(key).shape, "f32")

    def encoding(self, key: str) -> str | None:
        """Returns the source's encoding."""
        return self._source.encoding(key)

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor in f32."""
        array = self._replaced.get(key)
        return self._source.read(key).astype(np.float32, copy=False) if array is None else array

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis in f32."""
        array = self._replaced.get(key)
        rows = self._source.read_rows(key, start, stop) if array is None else array[start:stop]
        return rows.astype(np.float32, copy=False)

    def origin(self, key: str) -> str:
        """Returns the source's origin of a key."""
        return self._source.origin(key)


class Compared(NamedTuple):
    """Loss and perplexity over a text, all tokens of the vocabulary counted.

    Attributes:
        loss: mean KL(original, changed), nats per token.
        perplexity: perplexity of the changed model.
        original: perplexity of the original.
    """

    loss: float
    perplexity: float
    original: float


class _Layers:
    """Results of the layers of one run, which later runs take in place of computing them."""

    def __init__(self) -> None:
        self.results: Final[dict[int, Any]] = {}
        self.first = 0  # layers before are not computed
        self.records = False

    def wrap(self, module: Module) -> None:
        """Changes the forward function of a layer."""
        match = _LAYER.fullmatch(module.path)
        if match is None:
            return
        number, forward = int(match[1]), module.forward

        def run(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            if number < self.first:
                return self.results[number]
            result = forward(ctx, *args, **kwargs)
            if self.records:
                self.results[number] = result
            return result

        module.forward = run


class Probe:
    """Loss of changed matrices over a few tokens, in nats per token.

    It is KL(original, changed) of the next token, among the 64 likeliest tokens of each position.

    Args:
        model: decoder in f32, unpacked; its layers are changed.
        weights: weights under the names of its parameters; those that are read again and again are best cached.
        ids: tokens i32 [B, T].
    """

    def __init__(self, model: Any, weights: WeightSource, ids: np.ndarray) -> None:
        self._tied: Final = bool(model.tied())
        self._model: Final = model
        self._source: Final = weights
        self._head: Final = head_of(model)
        self._ids: Final = ids
        self._layers: Final = _Layers()
        model.visit(self._layers.wrap)
        self._layers.records = True
        logits = self._logits({}, 0, None)
        self._layers.records = False
        likeliest = np.argpartition(logits, -min(_LIKELIEST, logits.shape[-1]), axis=-1)[..., -_LIKELIEST:]
        self._tokens: Final = np.unique(likeliest)
        self._base: Final = log_probabilities(logits[..., self._tokens])
        count = len(self._layers.results)
        again = log_probabilities(self._logits({}, count // 2, self._tokens))
        self._skips: Final = bool(np.abs(again - self._base).max() < _SAME)

    def loss(self, replaced: Mapping[str, np.ndarray]) -> float:
        """Returns the loss of replaced matrices. Layers before the first of them are not computed again."""
        numbers = [self._first(path) for path in replaced]
        changed = log_probabilities(self._logits(replaced, min(numbers) if self._skips else 0, self._tokens))
        return float(divergence(self._base, changed).mean())

    def compare(self, replaced: Mapping[str, np.ndarray], ids: np.ndarray) -> "Compared":
        """Returns loss and perplexity of replaced matrices over tokens i32 [B, T], a row at a time."""
        self._layers.first = 0
        original = ReplacedWeights(self._source, {})
        changed = ReplacedWeights(self._source, replaced)
        losses: list[np.ndarray] = []
        named: list[tuple[np.ndarray, np.ndarray]] = []
        for row in ids:
            before, after = (
                log_probabilities(self._model(EagerExecutionContext(weights), row[np.newaxis]).numpy()[0])
                for weights in (original, changed)
            )
            losses.append(divergence(before, after))
            places = np.arange(len(row) - 1), row[1:]
            named.append((before[places], after[places]))
        first, second = (float(np.exp(-np.concatenate([pair[side] for pair in named]).mean())) for side in (0, 1))
        return Compared(float(np.concatenate(losses).mean()), second, first)

    def _first(self, path: str) -> int:
        layer = layer_of(path)
        if path == self._head and not self._tied:
            return len(self._layers.results)
        return layer or 0

    def _logits(self, replaced: Mapping[str, np.ndarray], first: int, tokens: np.ndarray | None) -> np.ndarray:
        self._layers.first = first
        context = FewLogits(ReplacedWeights(self._source, replaced), self._head, tokens)
        return self._model(context, self._ids).numpy()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Returns the logarithms of softmax over the last axis, f64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def divergence(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns KL(first, second) over the last axis of log-probabilities, never below 0."""
    return np.maximum((np.exp(first) * (first - second)).sum(axis=-1), 0)
