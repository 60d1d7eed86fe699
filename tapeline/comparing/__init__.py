"""What tools:compare does: two sides run on the same inputs, and what was found said as text."""

from tapeline.comparing._choices import wanted
from tapeline.comparing._inputs import Arrays, example_inputs, next_state
from tapeline.comparing._runs import INSIDE, compare_runs
from tapeline.comparing._sides import DeviceSide, EagerSide, Side, check_alike, eager_side, model_of
from tapeline.comparing._text import comparison_text, error_of

__all__ = [
    "INSIDE",
    "Arrays",
    "DeviceSide",
    "EagerSide",
    "Side",
    "check_alike",
    "compare_runs",
    "comparison_text",
    "eager_side",
    "error_of",
    "example_inputs",
    "model_of",
    "next_state",
    "wanted",
]
