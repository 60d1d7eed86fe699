"""Fine-tuning of checkpoints on JAX: all parameters, or a LoRA adapter (docs/training.md).

JAX is loaded by ``train``, and by the names of its parts when they are first asked for.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lang_core import load_extra
from tapeline.finetuning._api import TrainedModel, train, writes_output
from tapeline.finetuning._options import SCHEDULES, Schedule, TrainKeywords, TrainOptions

if TYPE_CHECKING:
    from tapeline.finetuning._adapter import adapted_modules, changes_of, first_values
    from tapeline.finetuning._objective import adapter_objective, full_objective
    from tapeline.finetuning._output import write_adapter

__all__ = [
    "SCHEDULES",
    "Schedule",
    "TrainKeywords",
    "TrainOptions",
    "TrainedModel",
    "adapted_modules",
    "adapter_objective",
    "changes_of",
    "first_values",
    "full_objective",
    "train",
    "write_adapter",
    "writes_output",
]

_MODULES: Final = MappingProxyType(
    {
        "adapted_modules": "_adapter",
        "adapter_objective": "_objective",
        "changes_of": "_adapter",
        "first_values": "_adapter",
        "full_objective": "_objective",
        "write_adapter": "_output",
    }
)


def __getattr__(name: str) -> Any:
    """Imports a part of a training, and JAX with it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load_extra(f"{__name__}.{_MODULES[name]}", "train", f"finetuning.{name}"), name)
