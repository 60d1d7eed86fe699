"""Quantization by measured loss: an encoding per matrix under a budget of size or of loss."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.quantizing._choice import Choice, Loss, Option, choose, frontier
    from tapeline.quantizing._inputs import CHUNK, MatrixInputs, collect_inputs
    from tapeline.quantizing._plan import (
        AUTO,
        CALIBRATION_TOKENS,
        DEFAULT_BPW,
        Budget,
        QuantizationPlan,
        check_budget,
        plan_quantization,
    )
    from tapeline.quantizing._text import CALIBRATION_FILE, read_calibration

export_lazily(__name__)
