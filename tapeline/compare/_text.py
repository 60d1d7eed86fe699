"""Comparisons as tables."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lang_core import checked_choices
from tapeline.cli import table
from tapeline.compare._comparison import ComparedTensor, Comparison

_MOST_LISTED: Final = 20


@checked_choices
def comparison_text(comparison: Comparison, *, every: bool) -> str:
    """Returns the table of a comparison, with a summary and the first divergence.

    Args:
        comparison: comparison to show.
        every: whether each tensor has a line; otherwise each block has one, with its worst tensor.
    """
    shared = [tensor for tensor in comparison.tensors if tensor.state not in ("missing", "extra")]
    lines = table([_HEAD, *_rows(shared)] if every else [_BLOCK_HEAD, *_block_rows(shared)], "")
    for state, side in (("missing", comparison.actual), ("extra", comparison.reference)):
        lines += _listed([tensor.label.name for tensor in comparison.tensors if tensor.state == state], side)
    lines.append(_summary(comparison))
    if comparison.first is not None:
        lines.append(comparison.divergence())
    return "\n".join(lines) + "\n"


_FIGURES: Final = ("max abs", "max rel", "cosine", "NMSE")
_HEAD: Final = ("step", "entry point", "tensor", "when", "state", *_FIGURES)
_BLOCK_HEAD: Final = ("step", "entry point", "block", "tensors", "differ", "worst tensor", *_FIGURES)


def _rows(tensors: Iterable[ComparedTensor]) -> Iterator[tuple[str, ...]]:
    for tensor in tensors:
        label = tensor.label
        name = f"{label.name} #{label.iteration}" if label.iteration else label.name
        yield str(label.step), label.entry_point, name, label.when, tensor.state, *_figures(tensor)


def _block_rows(tensors: Iterable[ComparedTensor]) -> Iterator[tuple[str, ...]]:
    blocks: dict[tuple[int, str, str], list[ComparedTensor]] = {}
    for tensor in tensors:
        blocks.setdefault((tensor.label.step, tensor.label.entry_point, tensor.block), []).append(tensor)
    for (step, entry_point, block), members in blocks.items():
        worst = max(members, key=error_of)
        differ = sum(member.diverges for member in members)
        counts = str(len(members)), str(differ) if differ else ""
        yield str(step), entry_point, block or "-", *counts, worst.label.name, *_figures(worst)


def error_of(tensor: ComparedTensor) -> float:
    """Returns the error relative to the largest value; infinite if the elements cannot be compared."""
    if tensor.figures is None or not tensor.figures.nonfinite_match:
        return math.inf
    return tensor.figures.max_rel


def _figures(tensor: ComparedTensor) -> tuple[str, ...]:
    figures = tensor.figures
    if figures is None:
        return f"{tensor.actual}, not {tensor.reference}", "", "", ""
    errors = f"{figures.max_abs:.3g}", f"{figures.max_rel:.3g}"
    return *errors, *(("", "") if tensor.figures_only else (f"{figures.cosine:.6f}", f"{figures.nmse:.3g}"))


def _listed(names: Sequence[str], side: str) -> list[str]:
    distinct = list(dict.fromkeys(names))
    if not distinct:
        return []
    more = f", and {len(distinct) - _MOST_LISTED} more" if len(distinct) > _MOST_LISTED else ""
    return [f"not in {side}: {', '.join(distinct[:_MOST_LISTED])}{more}"]


def _summary(comparison: Comparison) -> str:
    count = comparison.count
    parts = [f"{count('agrees')} agree", f"{count('differs', 'unlike')} differ"]
    parts += [f"{count('missing', 'extra')} are on one side only"] if count("missing", "extra") else []
    partly = sum(tensor.figures_only for tensor in comparison.tensors)
    parts += [f"{partly} by their figures only, for elements were not dumped"] if partly else []
    return (
        f"{comparison.actual} against {comparison.reference}: of {len(comparison.tensors)} tensors "
        f"{', '.join(parts)} (tolerance {comparison.tolerance:.0e})"
    )
