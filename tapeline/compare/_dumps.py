"""Comparison of two dumps, aligned by step, entry point, name, moment and iteration."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Final

from lang_core import InputError, near_keywords
from runtime.dump import MANIFEST, Dump, DumpRecord, TensorLabel, read_dump
from tapeline.cli import Progress, ProgressEvent, no_progress
from tapeline.compare._agreement import Agreement
from tapeline.compare._comparison import ComparedTensor, Comparison, tolerance_of
from tapeline.compare._tensors import are_unlike, compare_tensors, left_out, unlike

_LABEL: Final = tuple(field.name for field in dataclasses.fields(TensorLabel))


def is_dump(path: str | os.PathLike[str]) -> bool:
    """Returns whether a directory is a dump."""
    return Path(path, MANIFEST).is_file()


@near_keywords
def compare_dumps(
    dump: Dump | str | os.PathLike[str],
    reference: Dump | str | os.PathLike[str],
    tolerance: float | None = None,
    *,
    progress: Progress = no_progress,
) -> Comparison:
    """Compares two dumps, in the order of the reference.

    Args:
        dump: dump to compare, or its directory.
        reference: dump to compare with, or its directory.
        tolerance: tolerance for floats; that of the coarsest dtype in the dumps if None.
        progress: receives a warning for a dump that ended early.

    Raises:
        InputError: a directory is not a dump, the dumps do not share a tensor, or a payload is missing or damaged.
    """
    actual, reference = (other if isinstance(other, Dump) else read_dump(Path(other)) for other in (dump, reference))
    for opened in (actual, reference):
        if not opened.complete:
            progress(ProgressEvent(f"warning: {opened.directory} ends early: {opened.error}"))
    if tolerance is None:
        tolerance = tolerance_of(record.dtype for dump in (actual, reference) for record in dump.records)
    others = {record.key: record for record in actual.records}
    tensors = [
        _compared(actual, others.pop(record.key, None), reference, record, tolerance) for record in reference.records
    ]
    if all(tensor.state == "missing" for tensor in tensors):
        raise InputError(
            f"{actual.directory} and {reference.directory} are mismatched dumps: they have no tensor in common "
            f"({len(actual.records)} and {len(reference.records)} tensors): dump the same calls and tags"
        )
    tensors += [left_out(_label(record), record.spec, missing=False) for record in others.values()]
    return Comparison(str(actual.directory), str(reference.directory), tolerance, tuple(tensors))


def _compared(
    actual: Dump, other: DumpRecord | None, reference: Dump, record: DumpRecord, tolerance: float
) -> ComparedTensor:
    if other is None:
        return left_out(_label(record), record.spec, missing=True)
    label = _label(record, other)
    if are_unlike(other.spec, record.spec):
        return unlike(label, other.spec, record.spec)
    if other.file is not None and record.file is not None:
        return compare_tensors(label, actual.load(other), reference.load(record), tolerance)
    figures = _figures(other, record)
    agrees = figures.within(tolerance if record.spec.dtype.is_floating else 0.0)
    return ComparedTensor(
        label=label,
        state="agrees" if agrees else "differs",
        actual=repr(other.spec),
        reference=repr(record.spec),
        figures=figures,
        figures_only=True,
    )


def _label(record: DumpRecord, other: DumpRecord | None = None) -> TensorLabel:
    """Returns the label of a tensor; fields that one record lacks are taken from the other."""
    fields = {name: getattr(record, name) for name in _LABEL}
    if other is not None:
        fields |= {name: getattr(other, name) for name in ("module_path", "op", "line") if fields[name] is None}
    return TensorLabel(**fields)


def _figures(actual: DumpRecord, reference: DumpRecord) -> Agreement:
    """Returns the agreement of the least, the largest and the mean value."""
    pairs = [(actual.min, reference.min), (actual.max, reference.max), (actual.mean, reference.mean)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    max_abs = max((abs(a - b) for a, b in known), default=0.0)
    scale = max((abs(b) for _, b in known), default=0.0)
    finite = len(known) == sum(b is not None for _, b in pairs)
    same = finite and actual.nan + actual.inf == reference.nan + reference.inf  # infinity in place of NaN is accepted
    return Agreement(
        max_abs=float(max_abs),
        max_rel=float(max_abs / scale if scale else max_abs),
        cosine=math.nan,
        nmse=math.nan,
        top1=math.nan,
        nonfinite_match=same,
    )
