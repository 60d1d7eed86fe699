"""Plan of a quantization: losses are measured, encodings chosen, and the choice is measured as a whole."""

import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import ENCODINGS, CachedWeights, Encoding, InputError, WeightSource, quantizable
from tapeline.cli import Progress, ProgressEvent
from tapeline.quantizing._choice import Choice, Loss, Option, choose, frontier
from tapeline.quantizing._errors import encoding_errors, noise, output_error, sampled_rows
from tapeline.quantizing._inputs import MatrixInputs, collect_inputs, head_of
from tapeline.quantizing._probe import Compared, Probe, ReplacedWeights, layer_of

AUTO: Final = "auto"
"""Option in place of an encoding: each matrix gets its own, by measured loss."""

DEFAULT_BPW: Final = 4.5
"""Bits per weight if neither a size nor a loss is asked for."""

CALIBRATION_TOKENS: Final = 2048
"""Tokens of a text over which inputs are observed."""

_KEPT: Final = 4 << 30  # bytes of weights that stay in memory
_WORK: Final = 3e12  # operations that the losses of single matrices take, about
_LENGTH: Final = 128
_TOKENS: Final = (64, 512)  # fewest and most tokens of these
_COMPARED: Final = 2  # rows of 128 tokens that the choice is measured on
_INPUTS: Final = 32  # kept per 512 tokens
_TRIES: Final = 4
_MARGIN: Final = 1.05
_POINTS: Final = 200
_UNMEASURED: Final = "q8_0"
_ROWS: Final = 4 << 20  # weights that are packed at a time


class Budget(NamedTuple):
    """Limit of a plan; one of the two is given.

    Attributes:
        target_bpw: the most bits per weight, of all matrices that can be packed.
        max_loss: the most loss, KL in nats per token.
    """

    target_bpw: float | None
    max_loss: float | None


def check_budget(
    quantize: str | None, target_bpw: float | None, max_loss: float | None, option: str = "quantize"
) -> Budget | None:
    """Returns the budget of a plan; None if encodings are not chosen by loss.

    Args:
        quantize: encoding that is asked for.
        target_bpw: the most bits per weight.
        max_loss: the most loss, in nats per token.
        option: name of the option with the encoding, for messages.

    Raises:
        InputError: both limits are given, one is out of its range, or one is given without ``auto``.
    """
    for name, value in (("target_bpw", target_bpw), ("max_loss", max_loss)):
        if value is not None and quantize != AUTO:
            raise InputError(f"{name}={value:g}: is a limit of encodings chosen by loss: give {option}={AUTO} too")
        if value is not None and not 0 < value < 100:
            raise InputError(f"{name}={value:g}: expected a number above 0 and below 100")
    if target_bpw is not None and max_loss is not None:
        raise InputError(f"target_bpw={target_bpw:g} with max_loss={max_loss:g}: give one of them")
    if quantize != AUTO:
        return None
    return Budget(DEFAULT_BPW if target_bpw is None and max_loss is None else target_bpw, max_loss)


@dataclass(frozen=True, slots=True)
class QuantizationPlan:
    """Chosen encodings with what was measured.

    Attributes:
        encodings: encoding of each matrix, by path.
        importance: mean squares of the inputs of matrices, f32 [K], by path: packing weighs errors by them.
        packed: matrices that are packed already, i8 [.., bytes of a row], by path; mapped files.
        facts: measured figures, as JSON values, for reports.
    """

    encodings: Mapping[str, Encoding]
    importance: Mapping[str, np.ndarray]
    packed: Mapping[str, np.ndarray]
    facts: dict[str, Any]


def plan_quantization(
    model: Any,
    weights: WeightSource,
    matrices: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, Encoding],
    ids: list[int],
    budget: Budget,
    folder: Path,
    progress: Progress,
) -> QuantizationPlan:
    """Measures the loss that each encoding of each matrix costs, and chooses encodings within a budget.

    A matrix is disturbed by noise as large as rounding to 4 bits, and the KL of the logits is its sensitivity. An
    encoding's loss is that KL times the squared error of the matrix's outputs over that of the noise, on some rows and
    some inputs. The choice is then packed and measured as a whole, and for ``max_loss`` made again if it loses more.

    Args:
        model: decoder in f32, unpacked, of its own: its layers are changed.
        weights: weights under the names of its parameters, unpacked.
        matrices: shapes of the matrices that can be packed, by path.
        stored: encodings that the checkpoint has matrices in: these lose nothing.
        ids: tokens of a text.
        budget: limit of size or loss.
        folder: existing directory for packed matrices, which the plan maps.
        progress: receives steps.

    Raises:
        InputError: the budget is too small.
    """
    source = CachedWeights(ReplacedWeights(weights, {}), _KEPT)
    inputs = collect_inputs(model, source, [*matrices], ids, progress, _INPUTS)
    measuring = _Measuring(model, source, matrices, stored, inputs, np.array(ids, np.int32))
    losses = measuring.losses(progress)
    packing = _Packing(source, inputs, stored, folder)
    total = sum(loss.weights for loss in losses)
    nbytes = None if budget.target_bpw is None else int(budget.target_bpw * total / 8)
    limit = budget.max_loss
    rows = _rows(np.array(ids, np.int32)[::-1], _COMPARED)[:, ::-1]

    def measured(limit: float | None) -> tuple[Choice, Compared]:
        choice = choose(losses, nbytes, limit)
        packing.pack(choice, matrices, progress)
        progress(ProgressEvent("measuring the loss of the choice"))
        return choice, measuring.probe.compare(_Unpacked(packing.packed, packing.encodings), rows)

    choice, whole = measured(limit)
    for _ in range(_TRIES - 1):
        if budget.max_loss is None or whole.loss <= budget.max_loss:
            break
        limit = min(limit or choice.loss, choice.loss) * budget.max_loss / (whole.loss * _MARGIN)
        choice, whole = measured(limit)
    if budget.max_loss is not None and whole.loss > budget.max_loss:
        raise InputError(
            f"max_loss={budget.max_loss:g}: {_TRIES} choices lose more, the last {whole.loss:.3g} nats per token: give "
            "more, or target_bpw"
        )
    progress(
        ProgressEvent(
            f"{8 * choice.nbytes / total:.3f} bits per weight, loss {whole.loss:.4g} nats per token, perplexity of the "
            f"text {whole.original:.4g} -> {whole.perplexity:.4g}"
        )
    )
    facts = _facts(budget, losses, choice, whole, measuring.tokens, len(ids), rows.size)
    encodings = {path: ENCODINGS[option.encoding] for path, option in choice.options.items()}
    importance = {path: seen.means for path, seen in inputs.items() if seen.count}
    return QuantizationPlan(encodings, importance, dict(packing.packed), facts)


class _Measuring:
    """Losses of the matrices of a decoder."""

    def __init__(
        self,
        model: Any,
        source: WeightSource,
        matrices: Mapping[str, tuple[int, ...]],
        stored: Mapping[str, Encoding],
        inputs: Mapping[str, MatrixInputs],
        ids: np.ndarray,
    ) -> None:
        self._source: Final = source
        self._matrices: Final = matrices
        self._stored: Final = stored
        self._inputs: Final = inputs
        self._seen: Final = np.unique(ids)
        self._head: Final = head_of(model)
        rows = _rows(ids, max(1, self._length() // _LENGTH), min(_LENGTH, self._length()))
        self.tokens: Final = rows.size
        self.probe: Final = Probe(model, source, rows)

    def _length(self) -> int:
        """Returns the number of tokens for about as much work as is wanted."""
        sizes = {path: int(np.prod(shape)) for path, shape in self._matrices.items()}
        layers: dict[int, int] = {}
        for path, size in sizes.items():
            layer = layer_of(path)
            if layer is not None:
                layers[layer] = layers.get(layer, 0) + size
        work = sum(2 * size for path in sizes for layer, size in layers.items() if layer >= (layer_of(path) or 0))
        least, most = _TOKENS
        return max(least, min(most, int(_WORK / max(1, work)) // least * least))

    def losses(self, progress: Progress) -> list[Loss]:
        """Returns the losses of all matrices."""
        losses: list[Loss] = []
        for index, (path, shape) in enumerate(self._matrices.items()):
            layer = layer_of(path)
            progress(ProgressEvent("measuring loss", index, len(self._matrices), path.removesuffix(".weight")))
            options = self._options(path) if path in self._inputs else ()
            if not options:
                name = self._stored[path].name if path in self._stored else _UNMEASURED
                options = (Option(name, _nbytes(name, shape), 0.0),)
            losses.append(Loss(path, layer, int(np.prod(shape)), options))
        return losses

    def _options(self, path: str) -> tuple[Option, ...]:
        weights, shape = self._source.read(path), self._matrices[path]
        change = noise(weights, zlib.crc32(path.encode()))
        loss = self.probe.loss({path: weights + change})
        seen = self._inputs[path]
        inputs = np.concatenate(seen.rows) if seen.rows else None
        importance = seen.means if seen.count else None
        flat, moved = weights.reshape(-1, shape[-1]), change.reshape(-1, shape[-1])
        looked_up = not seen.count and len(shape) == 2 and path != self._head
        rows = sampled_rows(len(flat), self._seen[self._seen < len(flat)] if looked_up else None)
        unit = output_error(moved[rows], inputs)
        names = [name for name in quantizable() if ENCODINGS[name].takes(shape)]
        errors = encoding_errors(flat[rows], inputs, importance, [ENCODINGS[name] for name in names])
        if path in self._stored and self._stored[path].takes(shape):
            errors[self._stored[path].name] = 0.0
        return tuple(
            Option(name, _nbytes(name, shape), loss * error / unit if unit else 0.0) for name, error in errors.items()
        )


def _nbytes(name: str, shape: Sequence[int]) -> int:
    encoding = ENCODINGS[name]
    return int(np.prod(shape)) // encoding.block * encoding.block_bytes


def _rows(ids: np.ndarray, count: int, length: int = _LENGTH) -> np.ndarray:
    """Returns i32 [count, length] of the first tokens; fewer or shorter rows if there are not as many."""
    length = min(length, len(ids))
    count = min(count, len(ids) // length)
    return np.ascontiguousarray(ids[: count * length].reshape(count, length))


class _Packing:
    """Packed matrices in files."""

    def __init__(
        self, source: WeightSource, inputs: Mapping[str, MatrixInputs], stored: Mapping[str, Encoding], folder: Path
    ) -> None:
        self.packed: Final[dict[str, np.ndarray]] = {}
        self.encodings: Final[dict[str, Encoding]] = {}
        self._source: Final = source
        self._inputs: Final = inputs
        self._stored: Final = stored
        self._folder: Final = folder
        self._names: Final[dict[str, str]] = {}

    def pack(self, choice: Choice, matrices: Mapping[str, tuple[int, ...]], progress: Progress) -> None:
        """Packs matrices whose encoding is new; those that the checkpoint has in their encoding are left to it."""
        changed = [path for path, option in choice.options.items() if self._names.get(path) != option.encoding]
        done = 0
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            numbers = {path: number for number, path in enumerate(matrices)}
            jobs = [pool.submit(self._pack, path, choice.options[path].encoding, numbers[path]) for path in changed]
            for path, job in zip(changed, jobs, strict=True):
                job.result()
                done += 1
                progress(ProgressEvent("packing", done - 1, len(changed), path.removesuffix(".weight")))
        self._names.update({path: choice.options[path].encoding for path in changed})

    def _pack(self, path: str, name: str, number: int) -> None:
        self.packed.pop(path, None)
        if path in self._stored and self._stored[path].name == name:
            return
        weights, encoding = self._source.read(path), ENCODINGS[name]
        seen = self._inputs.get(path)
        importance = seen.means if seen is not None and seen.count else None
        spec = encoding.packed(self._source.spec(path))
        rows = weights.reshape(-1, weights.shape[-1])
        file = np.lib.format.open_memmap(
            self._folder / f"{number}.{name}.npy", "w+", np.int8, (len(rows), spec.shape[-1])
        )
        step = max(1, _ROWS // rows.shape[1])
        for start in range(0, len(rows), step):
            file[start : start + step] = encoding.pack(rows[start : start + step], importance)
        self.packed[path], self.encodings[path] = file.reshape(spec.shape), encoding


class _Unpacked(Mapping[str, np.ndarray]):
    """Packed matrices as f32, each unpacked when it is asked for."""

    def __init__(self, packed: Mapping[str, np.ndarray], encodings: Mapping[str, Encoding]) -> None:
        self._packed: Final = packed
        self._encodings: Final = encodings

    def __getitem__(self, path: str) -> np.ndarray:
        return self._encodings[path].unpacked(np.asarray(self._packed[path]))

    def __iter__(self) -> Any:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


def _facts(
    budget: Budget, losses: Sequence[Loss], choice: Choice, whole: Compared, probed: int, observed: int, compared: int
) -> dict[str, Any]:
    """Returns the figures for reports."""
    weights = sum(loss.weights for loss in losses)
    layers: dict[int | None, list[Loss]] = {}
    for loss in losses:
        layers.setdefault(loss.layer, []).append(loss)
    points = frontier(losses)
    step = max(1, len(points) // _POINTS)
    return {
        "target_bpw": budget.target_bpw,
        "max_loss": budget.max_loss,
        "bits_per_weight": 8 * choice.nbytes / weights,
        "bytes": choice.nbytes,
        "weights": weights,
        "predicted_loss": choice.loss,
        "loss": whole.loss,
        "perplexity": whole.perplexity,
        "unquantized_perplexity": whole.original,
        "tokens": {"observed": observed, "per_matrix": probed, "compared": compared},
        "layers": [
            {
                "layer": layer,
                "weights": sum(loss.weights for loss in group),
                "bytes": sum(choice.options[loss.path].nbytes for loss in group),
                "loss": sum(choice.options[loss.path].loss for loss in group),
            }
            for layer, group in layers.items()
        ],
        "matrices": [
            {
                "path": loss.path,
                "layer": loss.layer,
                "encoding": choice.options[loss.path].encoding,
                "bytes": choice.options[loss.path].nbytes,
                "loss": choice.options[loss.path].loss,
                "losses": {option.encoding: option.loss for option in loss.options},
            }
            for loss in losses
        ],
        "frontier": [[8 * size / weights, loss] for size, loss in [*points[:-1:step], points[-1]]],
    }
