"""What a comparison found, tensor by tensor."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from lang_core import as_dtype
from run_iree.dump import TensorLabel
from tapeline.compare._agreement import PACKED, TOLERANCE, Agreement

# agrees, differs: within the tolerance or not. unlike: shapes or kinds of dtype are not the same. missing, extra: only
# the reference, or only the other has the tensor.
State = Literal["agrees", "differs", "unlike", "missing", "extra"]

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTensor:
    """One tensor of both sides.

    Attributes:
        label: which, and when.
        state: what was found.
        found: dtype and shape of the one, such as ``f32[2,3]``; None where it is missing.
        reference: the same of the reference.
        figures: how well the elements agree; None where they were not compared.
        figures_only: no elements were there on one side: least, largest and mean values, and the counts of NaN and
            infinities were compared, and ``figures`` has of these the largest error.
    """

    label: TensorLabel
    state: State
    found: str | None
    reference: str | None
    figures: Agreement | None = None
    figures_only: bool = False

    @property
    def diverges(self) -> bool:
        """Whether the two are not the same tensor."""
        return self.state in ("differs", "unlike")

    @property
    def block(self) -> str:
        """The block that the tensor belongs to; empty outside of blocks."""
        return block_of(self.label.name)

    def as_json(self) -> dict[str, Any]:
        """For ``--format=json``."""
        return {
            **dataclasses.asdict(self.label),
            "block": self.block,
            "state": self.state,
            "found": self.found,
            "reference": self.reference,
            "figures": None if self.figures is None else _without_nan(self.figures.as_json()),
            "figures_only": self.figures_only,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All tensors, in the order in which the reference met them.

    Attributes:
        found: what was compared.
        reference: with what.
        tolerance: the error, relative to the largest reference value, up to which floats agree.
        tensors: of both.
    """

    found: str
    reference: str
    tolerance: float
    tensors: tuple[ComparedTensor, ...]

    @property
    def first(self) -> ComparedTensor | None:
        """The first that diverges. Of a call's results, those of blocks count before those of the whole model."""
        return min((each for each in self.tensors if each.diverges), key=_moment, default=None)

    @property
    def last_agreeing(self) -> ComparedTensor | None:
        """The last tag that agrees before the first tensor that diverges, in the same call."""
        first, last = self.first, None
        for each in self.tensors:
            if each is first:
                break
            if first and each.label.step == first.label.step and each.label.when == "during" and each.state == "agrees":
                last = each
        return last

    def count(self, *states: State) -> int:
        """How many tensors are so."""
        return sum(each.state in states for each in self.tensors)

    def divergence(self) -> str:
        """The first divergence for a person: block, op, module path, line, figures; empty where there is none."""
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
            return f"{tensor.found}, the reference is {tensor.reference}"
        unlike = "" if figures.nonfinite_match else "other elements are finite, "
        errors = f"max abs {figures.max_abs:.3g}, max rel {figures.max_rel:.3g} ({self.tolerance:.0e} is allowed)"
        if tensor.figures_only:
            return f"{unlike}of the least, largest and mean value {errors}"
        return f"{unlike}{errors}, cosine {figures.cosine:.6f}, NMSE {figures.nmse:.3g}"

    def as_json(self) -> dict[str, Any]:
        """For ``--format=json``."""
        first = self.first
        states = {state: self.count(state) for state in get_args(State)}
        return {
            "schema": SCHEMA,
            "found": self.found,
            "reference": self.reference,
            "tolerance": self.tolerance,
            "counts": states,
            "first_divergence": None if first is None else first.as_json(),
            "tensors": [each.as_json() for each in self.tensors],
        }


def _moment(tensor: ComparedTensor) -> tuple[int, int, bool]:
    when = tensor.label.when
    return tensor.label.step, ("before", "during", "after").index(when), when == "after" and not tensor.block


def _without_nan(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as JSON can say them."""
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def _module(label: TensorLabel) -> str:
    return "" if label.module_path is None else f", module {label.module_path or 'at the root'}"


def _op(label: TensorLabel) -> str:
    return f"op {label.op}, " if label.op else ""


def block_of(name: str) -> str:
    """The path up to its first number; empty where it has none.

    >>> block_of("model.layers.3.self_attn.q"), block_of("logits")
    ('model.layers.3', '')
    """
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return ""


def tolerance_of(dtypes: Iterable[str]) -> float:
    """What may be between two computations in which these dtypes occur: that of the coarsest (docs/numerics.md).

    ``PACKED`` stands for what is multiplied with packed weights.
    """
    floats = {name for name in dtypes if name == PACKED or as_dtype(name).is_floating}
    return max((TOLERANCE[name] for name in floats), default=0.0)
