"""Memory budget of an export."""

from typing import Final

from lang_core import InputError
from tapeline.bundle import PhaseMeter
from tapeline.cli import size_text
from tapeline.exporting._options import ExportOptions
from tapeline.exporting._predict import Prediction

# Remedy for a phase that needs too much.
_ADVICE: Final = {
    "lower": "choose lowering=streaming and weights=external",
    "parameters": "choose weights=none",
    "compile": "choose target=none, and compile module.mlir elsewhere",
    "verify": "choose verify=parse, a smaller `max_sequence`, `sequence` or `batch`",
}


def check_budget(options: ExportOptions, prediction: Prediction, meter: PhaseMeter) -> None:
    """Compares the predicted memory of an export with its budget.

    The budget is for anonymous memory of this process and its child, at any time: the system reclaims mapped files when
    it needs the room.

    Raises:
        InputError: a phase needs more.
    """
    if options.max_memory is None:
        return
    level = meter.base.anonymous
    needs = {
        phase: level + own + prediction.child_bytes.get(phase, 0) for phase, own in prediction.anonymous_bytes.items()
    }
    phase = max(needs, key=needs.__getitem__)
    if needs[phase] > options.max_memory:
        others = ", ".join(f"{name} {size_text(size)}" for name, size in needs.items() if name != phase)
        raise InputError(
            f"max_memory={size_text(options.max_memory)}: the phase {phase!r} needs about {size_text(needs[phase])} "
            f"({size_text(level)} of them for the program itself; the others: {others}): give that much, or "
            f"{_ADVICE[phase]}"
        )
