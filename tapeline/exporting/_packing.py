"""Counts of packed weights, and the cost of those that are unpacked: for the report and for stderr."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from lang_core import ENCODINGS, Parameter, StoredBytes, WeightSource
from tapeline.cli import Progress, ProgressEvent, size_text
from transformer_core import STORED
from transformer_core.checkpoints import PackedWeights
from transformer_core.checkpoints.gguf import packed_bytes
from transformer_core.models import Model

_NUMBER: Final = re.compile(r"\.\d+\.")


@dataclass(frozen=True, slots=True)
class PackingFacts:
    """Counts and bytes, as the report has them.

    Attributes:
        packed: counts and bytes of the bundle's packed weights; empty if none is packed.
        dequantised: number of tensors per encoding that are packed in the checkpoint and not in the bundle.
        dequantised_bytes: their bytes in the checkpoint (``stored``; None if an encoding's size is not known) and in
            the bundle (``unpacked``).
    """

    packed: dict[str, Any] = field(default_factory=dict)
    dequantised: dict[str, int] = field(default_factory=dict)
    dequantised_bytes: dict[str, int | None] = field(default_factory=lambda: {"stored": 0, "unpacked": 0})


def packing_facts(model: Model[Any], weights: WeightSource, progress: Progress) -> PackingFacts:
    """Counts packed and unpacked weights of a model and reports both, without reading weights.

    Args:
        model: modules of the bundle.
        weights: checkpoint under the names of the model's parameters.
        progress: receives the lines for stderr.
    """
    packed = _packed(model, weights, progress) if isinstance(weights, PackedWeights) else {}
    encodings: Counter[str] = Counter()
    stored: list[int | None] = []
    unpacked = 0
    for path, parameter in model.named_parameters():
        encoding = weights.encoding(path)
        if encoding is not None:
            encodings[encoding] += 1
            stored.append(_stored_bytes(weights, path, encoding, parameter.spec.size))
            unpacked += parameter.spec.nbytes
    known = [size for size in stored if size is not None]
    sizes = {"stored": sum(known) if len(known) == len(stored) else None, "unpacked": unpacked}
    if encodings:
        cost = "" if sizes["stored"] is None else f", where the checkpoint has {size_text(sizes['stored'])}"
        advice = "" if packed else _advice(encodings)
        progress(
            ProgressEvent(
                f"packed weights ({_counts(encodings)} tensors) are dequantised: the bundle holds them unpacked, in "
                f"{size_text(unpacked)}{cost}{advice}"
            )
        )
    return PackingFacts(packed, dict(encodings), sizes)


def _stored_bytes(weights: WeightSource, path: str, encoding: str, elements: int) -> int | None:
    """Returns the bytes that the checkpoint has of a packed tensor; None if they are not known."""
    size = weights.stored_bytes(path) if isinstance(weights, StoredBytes) else None
    return packed_bytes(encoding, elements) if size is None else size


def _packed(model: Model[Any], weights: PackedWeights, progress: Progress) -> dict[str, Any]:
    """Counts the bundle's packed weights and the checkpoint's encodings that were unpacked, and reports both."""
    parameters = dict(model.named_parameters())
    packed = {path: parameter for path, parameter in parameters.items() if parameter.encoding is not None}
    kinds = Counter(parameter.encoding.name for parameter in packed.values() if parameter.encoding is not None)
    kept = [path for path in packed if weights.kept(path)]
    stored = {path: weights.stored_encoding(path) for path in packed}
    exact = Counter(kind for path in kept if (kind := stored[path]) and not _same_bytes(packed[path], kind))
    same = len(kept) - exact.total()
    other = Counter(kind for path, kind in stored.items() if kind is not None and path not in kept)
    plain = {
        path: parameter.spec
        for path, parameter in parameters.items()
        if parameter.encoding is None and parameter.spec.ndim > 1
    }
    facts = {
        "matrices": len(packed),
        "encodings": dict(kinds),
        "kept": same,
        "exact": dict(exact),
        "requantised": dict(other),
        "bytes": sum(parameter.stored_spec.nbytes for parameter in packed.values()),
        "unpacked": len(plain),
        "unpacked_bytes": sum(spec.nbytes for spec in plain.values()),
        "unpacked_parameters": list(dict.fromkeys(_NUMBER.sub(".*.", path) for path in plain)),
    }
    names = _counts(kinds) if len(kinds) > 1 else next(iter(kinds))
    told = f", {_counts(exact)} in other blocks with exactly the same weights" if exact else ""
    progress(
        ProgressEvent(f"{len(packed)} matrices are packed as {names}, {same} of them byte for byte as stored{told}")
    )
    if other:
        told = f"{_counts(other)} matrices are packed otherwise in the checkpoint, and quantised a second time"
        progress(ProgressEvent(told + _advice(other)))
    if plain:
        size, names = size_text(facts["unpacked_bytes"]), ", ".join(facts["unpacked_parameters"])
        progress(ProgressEvent(f"{len(plain)} other weights of two axes and more ({size}) stay unpacked: {names}"))
    return facts


def _same_bytes(parameter: Parameter, kind: str) -> bool:
    """Returns whether a kept parameter has the very bytes that are stored: those of an encoding of GGUF."""
    return parameter.encoding is not None and parameter.encoding.name == kind


def _advice(encodings: Counter[str]) -> str:
    """Returns advice on keeping packed weights, if they can be kept."""
    kept = sorted(ENCODINGS.keys() & encodings)
    return f"; quantize={STORED} keeps those of {', '.join(kept)} packed" if kept else ""


def _counts(encodings: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in encodings.most_common())
