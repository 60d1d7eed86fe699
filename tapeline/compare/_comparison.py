"""Comparisons of two sides, tensor by tensor, and their first divergence."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from lang_core import as_dtype, checked_choices
from runtime.dump import TensorLabel
from tapeline.compare._agreement import PACKED, PACKED_Q8, TOLERANCE, Agreement

# agrees, differs: within the tolerance or not. unlike: other shapes or kinds of dtype. missing: only the reference has
# the tensor. extra: only the compared side has it.
State = Literal["agrees", "differs", "unlike", "missing", "extra"]

SCHEMA: Final = 1


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTensor:
    """Comparison of one tensor of both sides.

    Attributes:
        label: name, call and moment of the tensor.
        state: result of the comparison.
        actual: dtype and shape on the compared side, such as ``f32[2,3]``; None if it is missing there.
        reference: dtype and shape on the reference side; None if it is missing there.
        figures: agreement of the elements; None if they were not compared.
        figures_only: True if one side is empty. Then least, largest and mean values, and the counts of NaN and
            infinities, are compared, and ``figures`` has the largest error of these.
    """

    label: TensorLabel
    state: State
    actual: str | None
    reference: str | None
    figures: Agreement | None = None
    figures_only: bool = False

    @property
    def diverges(self) -> bool:
        """True if both sides have the tensor and do not agree."""
        return self.state in ("differs", "unlike")

    @property
    def block(self) -> str:
        """Block that the tensor belongs to; empty outside of blocks."""
        return block_of(self.label.name)

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison of the tensor as JSON values."""
        return {
            **dataclasses.asdict(self.label),
            "block": self.block,
            "state": self.state,
            "found": self.actual,
            "reference": self.reference,
            "figures": None if self.figures is None else _without_nan(self.figures.as_json()),
            "figures_only": self.figures_only,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two sides: all tensors, in the order of the reference.

    Attributes:
        actual: name of the compared side.
        reference: name of the reference side.
        tolerance: largest error, relative to the largest reference value, up to which floats agree.
        tensors: comparisons of the tensors.
    """

    actual: str
    reference: str
    tolerance: float
    tensors: tuple[ComparedTensor, ...]

    @property
    def first(self) -> ComparedTensor | None:
        """First tensor that diverges. Among a call's results, those of blocks come before those of the whole model."""
        return min((tensor for tensor in self.tensors if tensor.diverges), key=_moment, default=None)

    @property
    def last_agreeing(self) -> ComparedTensor | None:
        """Last tag that agrees before the first tensor that diverges, in the same call."""
        first, last = self.first, None
        for tensor in self.tensors:
            if first is None or tensor is first:
                break
            label = tensor.label
            if label.step == first.label.step and label.when == "during" and tensor.state == "agrees":
                last = tensor
        return last

    @checked_choices
    def count(self, *states: State) -> int:
        """Returns the number of tensors in any of these states."""
        return sum(tensor.state in states for tensor in self.tensors)

    def divergence(self) -> str:
        """Returns the first divergence as text: block, op, module path, line, figures; empty if there is none."""
        first = self.first
        if first is None:
            return ""
        label = first.label
        where = f"{_op(label)}block {first.block or '(none)'}{_module(label)}"
        line = f", {label.line}" if label.line else ""
        often = f", iteration {label.iteration}" if label.iteration else ""
        last = self.last_agreeing
        before = f"; the last tensor before it that agrees is {last.label.name!r}" if last else ""
        return (
            f"first divergence: {where}{line}: tensor {label.name!r} ({label.direction} of {label.entry_point}, step "
            f"{label.step}{often}): {self._figures(first)}{before}"
        )

    def _figures(self, tensor: ComparedTensor) -> str:
        figures = tensor.figures
        if figures is None:
            return f"{tensor.actual}, the reference is {tensor.reference}"
        unlike = "" if figures.nonfinite_match else "other elements are finite, "
        errors = f"max abs {figures.max_abs:.3g}, max rel {figures.max_rel:.3g} ({self.tolerance:.0e} is allowed)"
        if tensor.figures_only:
            return f"{unlike}of the least, largest and mean value {errors}"
        return f"{unlike}{errors}, cosine {figures.cosine:.6f}, NMSE {figures.nmse:.3g}"

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison as JSON values."""
        first = self.first
        states = {state: self.count(state) for state in get_args(State)}
        return {
            "schema": SCHEMA,
            "found": self.actual,
            "reference": self.reference,
            "tolerance": self.tolerance,
            "counts": states,
            "first_divergence": None if first is None else first.as_json(),
            "tensors": [tensor.as_json() for tensor in self.tensors],
        }


def _moment(tensor: ComparedTensor) -> tuple[int, int, bool]:
    when = tensor.label.when
    return tensor.label.step, ("before", "during", "after").index(when), when == "after" and not tensor.block


def _without_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns figures with None for NaN, which JSON does not have."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def _module(label: TensorLabel) -> str:
    return "" if label.module_path is None else f", module {label.module_path or 'at the root'}"


def _op(label: TensorLabel) -> str:
    return f"op {label.op}, " if label.op else ""


def block_of(name: str) -> str:
    """Returns the path up to its first number; empty if it has none.

    >>> block_of("model.layers.3.self_attn.q"), block_of("logits")
    ('model.layers.3', '')
    """
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return ""


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Returns the tolerance of the coarsest of these dtypes (docs/numerics.md).

    ``PACKED`` and ``PACKED_Q8`` stand for operands of packed weights.
    """
    floats = {name for name in dtypes if name in (PACKED, PACKED_Q8) or as_dtype(name).is_floating}
    return max((TOLERANCE[name] for name in floats), default=0.0)
